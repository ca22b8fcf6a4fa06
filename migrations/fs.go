package migrations

import (
	"embed"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/pglimit/pglimit/sql"
)

//go:embed [0-9]*.sql
var numbered embed.FS

// FS returns what tern loads migrations from: the numbered files of this folder and, at the same
// root, the folders of sql/ they include from. go:embed cannot climb out of a folder and tern reads
// numbered files in the root only, hence the overlay; and with sql/ mounted at the root, a path means
// the same file here, in the code package and in a snapshot.
//
// A program that runs tern itself must set role pglimit_system first (tern's RESET ALL keeps it) and
// leaves out the code package: [Up] does both.
func FS() fs.FS { return overlay{numbered, sql.FS} }

// overlay shows several file systems as one. A name belongs to the first layer that has it; only the
// root is merged, since no other folder is in two layers.
type overlay []fs.FS

func (o overlay) Open(name string) (fs.File, error) {
	for _, layer := range o {
		f, err := layer.Open(name)
		if err == nil && name == "." {
			return o.openRoot(f)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (o overlay) openRoot(first fs.File) (fs.File, error) {
	var entries []fs.DirEntry
	for _, layer := range o {
		found, err := fs.ReadDir(layer, ".")
		if err != nil {
			return nil, err
		}
		entries = append(entries, found...)
	}
	// Stable: of two entries of one name the first layer's is kept, as in Open.
	byName := func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }
	slices.SortStableFunc(entries, byName)
	entries = slices.CompactFunc(entries, func(a, b fs.DirEntry) bool { return a.Name() == b.Name() })
	return &root{File: first, entries: entries}, nil
}

// root is the merged root folder.
type root struct {
	fs.File // the first layer's root, for Stat, Read and Close
	entries []fs.DirEntry
}

func (r *root) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(r.entries)
	} else if len(r.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(r.entries))
	entries := r.entries[:n:n]
	r.entries = r.entries[n:]
	return entries, nil
}
