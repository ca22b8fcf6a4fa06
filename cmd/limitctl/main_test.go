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
			newDB := dbtest.New
			if strings.HasPrefix(filepath.Base(env.WorkDir), "script-schema") {
				newDB = dbtest.NewEmpty
			}
			db := newDB(env.T().(testing.TB))
			env.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("DBNAME", db.Name)
			for name, role := range map[string]string{
				"APP_URL": "pglimit_app", "INSTALLER_URL": dbtest.Installer, "MONITOR_URL": "pglimit_monitor",
				"NOBODY_URL": "", "OPERATOR_URL": "pglimit_operator",
			} {
				// In an empty database the roles may not be there to be a member of.
				if role != dbtest.Installer && strings.HasPrefix(filepath.Base(env.WorkDir), "script-schema") {
					continue
				}
				env.Setenv(name, db.URL(role))
			}
			env.Setenv("LIMITCTL_DATABASE_URL", db.URL(dbtest.Installer))
			if operator := env.Getenv("OPERATOR_URL"); operator != "" {
				env.Setenv("LIMITCTL_DATABASE_URL", operator)
				return splitURL(env, operator)
			}
			env.Values["super"] = db.SuperURL()
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"sql":   sql,
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
	dsn := ts.Getenv(args[0])
	conn, err := pgx.Connect(ctx, dsn)
	ts.Check(err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, args[1])
	ts.Check(err)
}
