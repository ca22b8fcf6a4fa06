package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pglimit/pglimit/tests/dbtest"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "limitctl" {
		main()
		return
	}
	dbtest.Main(m)
}

// Each script is a session of an operator, with a database of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(program, filepath.Join(bin, "limitctl")); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// Scripts about the schema begin without one.
			empty := strings.HasPrefix(filepath.Base(env.WorkDir), "script-schema")
			newDB := dbtest.New
			if empty {
				newDB = dbtest.NewEmpty
			}
			db := newDB(env.T().(testing.TB))
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each limitctl ends a second late under -race
			env.Setenv("DBNAME", db.Name)
			installer := db.URL(dbtest.Installer)
			env.Setenv("INSTALLER_URL", installer)
			if empty {
				env.Setenv("LIMITCTL_DATABASE_URL", installer)
				return splitURL(env, installer)
			}
			env.Setenv("APP_URL", db.URL("pglimit_app"))
			env.Setenv("MONITOR_URL", db.URL("pglimit_monitor"))
			env.Setenv("NOBODY_URL", db.URL(""))
			env.Setenv("SUPER_URL", db.SuperURL())
			env.Setenv("LIMITCTL_DATABASE_URL", db.URL("pglimit_operator"))
			return splitURL(env, db.URL("pglimit_operator"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"holds": holds,
			"sql":   sql,
			"until": until,
		},
	})
}

// splitURL sets the parts of a URL, for scripts that connect by PG*.
func splitURL(env *testscript.Env, text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	password, _ := u.User.Password()
	host := u.Hostname()
	if h := u.Query().Get("host"); host == "" {
		host = h
	}
	env.Setenv("DBHOST", host)
	env.Setenv("DBPORT", u.Port())
	env.Setenv("DBUSER", u.User.Username())
	env.Setenv("DBPASSWORD", password)
	return nil
}

// exits runs a program that must end with this code: exits 4 limitctl permit list.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// sql runs a statement as somebody: sql APP_URL 'select …'.
func sql(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql URL_VARIABLE statement")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, ts.Getenv(args[0]))
	ts.Check(err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, args[1])
	ts.Check(err)
}

// holds runs a statement in a transaction that stays open until the script ends: holds SUPER_URL 'lock table …'.
func holds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: holds URL_VARIABLE statement")
	}
	conn, err := pgx.Connect(context.Background(), ts.Getenv(args[0]))
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(context.Background(), "begin")
	ts.Check(err)
	_, err = conn.Exec(context.Background(), args[1])
	ts.Check(err)
}

// until waits for a query to be true: until SUPER_URL 'select exists (…)'.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until URL_VARIABLE query")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, ts.Getenv(args[0]))
	ts.Check(err)
	defer conn.Close(context.Background())
	for {
		var yes bool
		ts.Check(conn.QueryRow(ctx, args[1]).Scan(&yes))
		if yes {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
