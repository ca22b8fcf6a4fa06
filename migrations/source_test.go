package migrations

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglimit/pglimit/sql"
)

func TestFS(t *testing.T) {
	t.Parallel()

	t.Run("IsAFileSystem", func(t *testing.T) {
		t.Parallel()
		err := fstest.TestFS(FS(), "001_init.sql", "install.sql", "tables/limits.sql",
			"functions/pglimit_version.sql", "policies/roles.sql")
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("PrefersTheFirstLayer", func(t *testing.T) {
		t.Parallel()
		o := overlay{
			fstest.MapFS{"a.sql": {Data: []byte("first")}},
			fstest.MapFS{"a.sql": {Data: []byte("second")}, "dir/b.sql": {}},
		}
		if err := fstest.TestFS(o, "a.sql", "dir/b.sql"); err != nil {
			t.Error(err)
		}
		if data, err := fs.ReadFile(o, "a.sql"); err != nil || string(data) != "first" {
			t.Errorf("a.sql = %q, %v", data, err)
		}
		if _, err := o.Open("c.sql"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("opening what is nowhere: %v", err)
		}
	})
}

// files returns every .sql file by path.
func files(t *testing.T, fsys fs.FS) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".sql" {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		found[name] = string(data)
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatalf("%d files, %v", len(found), err)
	}
	return found
}

var (
	include   = regexp.MustCompile(`(?m)^\{\{ template "([^"]+)" \. \}\}$`)
	roleWords = regexp.MustCompile(`(?im)^\s*(set|reset)\s+(local\s+|session\s+)?role\b`)
)

// TestTemplates keeps the sources loadable: every file is a template to tern, which would fail on a
// stray brace, split a file at its separator, and put "<no value>" where data is missing.
func TestTemplates(t *testing.T) {
	t.Parallel()
	for name, text := range files(t, FS()) {
		manifest := path.Dir(name) == "."
		if manifest {
			text = include.ReplaceAllString(text, "")
		}
		if strings.Contains(text, "{{") {
			t.Errorf("%s: {{ is for tern's templates: use array[…] for nested arrays, and in a manifest "+
				`nothing but lines {{ template "path" . }}`, name)
		}
		for _, magic := range []string{"---- create above / drop below ----", "---- tern:"} {
			if strings.Contains(text, magic) {
				t.Errorf("%s: %q is tern's and not used here: migrations go forward only, in a transaction", name, magic)
			}
		}
		if manifest && name != "install.sql" && roleWords.MatchString(text) {
			t.Errorf("%s: a migration runs as pglimit_system already; Up sets the role and takes it back", name)
		}
	}
	src, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	all := src.code
	for _, m := range src.migrations {
		all += m.UpSQL
	}
	if strings.Contains(all, "<no value>") {
		t.Error("a template uses data, which nobody gives it")
	}
}

// TestManifests: a file that no manifest includes is a file that is never installed.
func TestManifests(t *testing.T) {
	t.Parallel()
	all := files(t, FS())
	included := map[string]int{}
	for _, name := range []string{"001_init.sql", "install.sql"} {
		for _, m := range include.FindAllStringSubmatch(all[name], -1) {
			included[m[1]]++
			if isTable := strings.HasPrefix(m[1], "tables/"); isTable != (name == "001_init.sql") {
				t.Errorf("%s includes %s: tables are the migrations' business, code is install.sql's", name, m[1])
			}
		}
	}
	for name := range all {
		want := 1
		if path.Dir(name) == "." || name == "policies/roles.sql" {
			want = 0
		}
		if included[name] != want {
			t.Errorf("%s is included %d times, want %d", name, included[name], want)
		}
		delete(included, name)
	}
	for name := range included {
		t.Errorf("%s is included and does not exist", name)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(Version) {
		t.Errorf("Version %q: want three numbers, which is what packages take", Version)
	}
	text, err := fs.ReadFile(sql.FS, "functions/pglimit_version.sql")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "'"+Version+"'") {
		t.Errorf("sql/functions/pglimit_version.sql does not answer %s: the two move together", Version)
	}
}

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	ascending := []string{"", "0.1.0", "0.2.0", "0.10.0", "1.0.0", "1.0.1", "10.0.0"}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := compareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("compareVersions(%q, %q) = %d", a, b, got)
			}
		}
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	s := seal{Objects: map[string]string{"table a": "1", "table b": "2", "table c": "3"}}
	got := strings.Join(s.drift(map[string]string{"table a": "1", "table b": "x", "table d": "4"}), "; ")
	if want := "table b differs; table c is missing; table d is not part of pglimit"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLostRace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  pgconn.PgError
		want bool
	}{
		{pgconn.PgError{Code: "55P03"}, true},
		{pgconn.PgError{Code: "40P01"}, true},
		{pgconn.PgError{Code: "XX000", Message: "tuple concurrently updated"}, true},
		{pgconn.PgError{Code: "XX000", Message: "cache lookup failed"}, false},
		{pgconn.PgError{Code: "23505", SchemaName: "pg_catalog"}, true},
		{pgconn.PgError{Code: "23505", SchemaName: "pglimit"}, false},
		{pgconn.PgError{Code: "42704", Message: `role "pglimit_app" does not exist`}, true},
		{pgconn.PgError{Code: "42704", Message: `role "pglimit_opertor" does not exist`}, false},
		{pgconn.PgError{Code: "42704", Message: `type "x" does not exist`}, false},
		{pgconn.PgError{Code: "42501"}, false},
	} {
		if got := lostRace(&c.err); got != c.want {
			t.Errorf("lostRace(%s %q) = %v", c.err.Code, c.err.Message, got)
		}
	}
	if lostRace(errors.New("other")) || lostRace(nil) {
		t.Error("an error of another kind is a lost race")
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	err := &Error{Code: "PGL04", Message: "no", Detail: "Because.", Hint: "ask again", err: ErrNewerInstalled}
	if got, want := err.Error(), "pglimit: no (SQLSTATE PGL04); Because; hint: ask again"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, ErrNewerInstalled) || errors.Is(err, ErrLocked) {
		t.Error("errors.Is mistakes the sentinel")
	}
}
