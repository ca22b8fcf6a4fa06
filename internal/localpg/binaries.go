package localpg

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// ErrNoBinaries is returned when no initdb and postgres can be found to start.
var ErrNoBinaries = errors.New("localpg: no PostgreSQL server binaries")

// FindBinaries returns the folder of the PostgreSQL server binaries to use: the one named by
// PGLIMIT_PG_BIN, else the newest version in the places where packages put them, else the one that
// pg_config names, else the one on the PATH.
func FindBinaries() (string, error) {
	if dir := os.Getenv("PGLIMIT_PG_BIN"); dir != "" {
		if !hasBinaries(dir) {
			return "", fmt.Errorf("%w: PGLIMIT_PG_BIN=%s does not hold initdb and postgres; "+
				"point it at the bin folder of a PostgreSQL server, or unset it", ErrNoBinaries, dir)
		}
		return dir, nil
	}

	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                   // the PostgreSQL project's RPMs
		"/usr/libexec/postgresql[0-9]*",      // Alpine
		"/opt/homebrew/opt/postgresql@*/bin", // Homebrew on Apple silicon
		"/usr/local/opt/postgresql@*/bin",    // Homebrew on Intel
		"/Library/PostgreSQL/[0-9]*/bin",     // EnterpriseDB's installer
		"/usr/local/pgsql/bin",               // built from source
	} {
		found, _ := filepath.Glob(pattern) // the only error is a bad pattern
		dirs = append(dirs, found...)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(majorIn(b), majorIn(a)) })

	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	if i := slices.IndexFunc(dirs, hasBinaries); i >= 0 {
		return dirs[i], nil
	}

	install := "install PostgreSQL 15 or newer (the server, not only the client)"
	switch runtime.GOOS {
	case "linux":
		install = "install the server (Debian, Ubuntu: apt-get install postgresql)"
	case "darwin":
		install = "install the server (brew install postgresql@17)"
	}
	return "", fmt.Errorf("%w found; %s, or set PGLIMIT_PG_BIN to a folder that holds initdb and postgres, "+
		"or for tests set PGLIMIT_TEST_DATABASE_URL to a superuser's connection string of a running server",
		ErrNoBinaries, install)
}

// hasBinaries tells whether dir holds the two programs this package runs. No psql, createdb or
// pg_ctl: some packages of the server come without.
func hasBinaries(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		path := filepath.Join(dir, name)
		if runtime.GOOS == "windows" {
			path += ".exe"
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}

var number = regexp.MustCompile(`\d+`)

// majorIn reads the major version from a path such as /usr/lib/postgresql/17/bin, 0 when none.
func majorIn(path string) int {
	major, _ := strconv.Atoi(number.FindString(path))
	return major
}
