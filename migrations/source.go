package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/tern/v2/migrate"

	"github.com/pglimit/pglimit/sql"
)

// Version is the version of the code that this package installs: what pglimit.pglimit_version()
// answers afterwards.
const Version = "0.1.0"

// versionTable is where tern keeps the number of the last migration.
const versionTable = "pglimit.schema_version"

// sealFormat is raised when the fingerprint is computed in another way: seals of another format say
// nothing, and the next Up renews them.
const sealFormat = 1

// The installer's own SQL, shared by Up and Render so that both end with the same catalog.
//
//go:embed steps/*.sql
var steps embed.FS

// source is what an installer installs: all of sql/ and the numbered files, rendered.
type source struct {
	version    string
	roles      string
	migrations []*migrate.Migration
	code       string
	hash       string
}

// embedded is the source in this binary.
var embedded = sync.OnceValues(func() (*source, error) { return load(FS(), sql.FS, Version) })

func load(numbered, code fs.FS, version string) (*source, error) {
	roles, err := fs.ReadFile(code, "policies/roles.sql")
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	// No template data here and below: a missing key would render as "<no value>", without an error.
	m, err := migrate.NewMigrator(context.Background(), nil, versionTable)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	if err := m.LoadMigrations(numbered); err != nil {
		return nil, fmt.Errorf("migrations: loading the numbered files: %w", err)
	}
	pkg, err := migrate.LoadCodePackage(code)
	if err != nil {
		return nil, fmt.Errorf("migrations: loading the code package: %w", err)
	}
	text, err := pkg.Eval(nil)
	if err != nil {
		return nil, fmt.Errorf("migrations: rendering install.sql: %w", err)
	}
	hash := sha256.Sum256([]byte(text))
	return &source{
		version:    version,
		roles:      string(roles),
		migrations: m.Migrations,
		code:       text,
		hash:       hex.EncodeToString(hash[:]),
	}, nil
}

// head is the number of the last migration.
func (s *source) head() int { return len(s.migrations) }

// step returns one of the installer's own texts, filled in.
func (s *source) step(name string) string {
	return strings.NewReplacer(
		"@code_hash@", s.hash,
		"@code_version@", s.version,
		"@fingerprint@", strings.TrimRight(stepText("fingerprint"), "\n"),
		"@format@", strconv.Itoa(sealFormat),
		"@schema_version@", strconv.Itoa(s.head()),
	).Replace(stepText(name))
}

func stepText(name string) string {
	text, err := steps.ReadFile("steps/" + name + ".sql")
	if err != nil {
		panic(err) // embedded: a wrong name here, caught by any test
	}
	return string(text)
}
