package migrations

import (
	"context"
	"io"
	"io/fs"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Source is another product to install: upgrades need two versions of one.
type Source struct{ load func() (*source, error) }

func NewSource(numbered, code fs.FS, version string) Source {
	return Source{sync.OnceValues(func() (*source, error) { return load(numbered, code, version) })}
}

func (s Source) Check(ctx context.Context, conn *pgx.Conn) (Status, error) {
	return check(ctx, conn, s.load)
}

func (s Source) Render(w io.Writer) error { return render(w, s.load) }

func (s Source) Up(ctx context.Context, conn *pgx.Conn, opts ...Option) (Result, error) {
	return Up(ctx, conn, append(opts, func(o *options) { o.source = s.load })...)
}
