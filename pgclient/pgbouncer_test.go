//go:build linux

package pgclient_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// C-47: through PgBouncer in transaction mode, with fewer server connections than clients, every exec mode gives the
// same answers, or the error says which mode does.
func TestPgBouncer(t *testing.T) {
	t.Parallel()
	program, keepsStatements := findPgBouncer(t)
	db := setup(t)
	port := startPgBouncer(t, program, keepsStatements, db.URL("pglimit_app"))
	open := func(t *testing.T, mode pgx.QueryExecMode) *pgclient.Client {
		t.Helper()
		pool := db.pool(t, func(config *pgxpool.Config) {
			config.MaxConns = 6
			config.ConnConfig.DefaultQueryExecMode = mode
			config.ConnConfig.Host, config.ConnConfig.Port = "127.0.0.1", uint16(port)
			clear(config.ConnConfig.RuntimeParams) // PgBouncer refuses a search_path
		})
		return must(pgclient.New(pool))(t)
	}

	// More wait than there are server connections: none is held between polls.
	t.Run("Wait", func(t *testing.T) {
		client := open(t, pgx.QueryExecModeExec)
		held := db.hold(t, "e")
		const waiters = 6
		var granted, inUse atomic.Int64
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				permit, err := client.ClaimPermit(t.Context(), waiting("e", fmt.Sprint("u", i)))
				if err != nil || !permit.Granted {
					t.Errorf("%+v, %v", permit, err)
					return
				}
				if n := inUse.Add(1); n > 1 {
					t.Errorf("%d at work, the cap is 1", n)
				}
				granted.Add(1)
				inUse.Add(-1)
				if released, err := permit.Release(t.Context()); err != nil || !released.Released {
					t.Errorf("%+v, %v", released, err)
				}
			})
		}
		db.until(t, "e", func(ids []int64) bool { return len(ids) == waiters })
		must(held.Release(t.Context()))(t)
		wg.Wait()
		want(t, "granted", granted.Load(), waiters)
		db.wantEmpty(t, "e")
	})

	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			client := open(t, mode)
			const callers, quota = 6, 5
			allowed := make([]int, callers)
			var wg sync.WaitGroup
			for i := range callers {
				wg.Go(func() {
					for range 2 * quota {
						d, err := client.Hit(t.Context(), pgclient.HitParams{
							Limit: "api", Subject: fmt.Sprint(mode, i), MaxHits: pgclient.N(quota), Per: pgclient.D(time.Hour),
						})
						if err != nil {
							e := wantKind(t, err)
							if mode != pgx.QueryExecModeCacheStatement || keepsStatements || !strings.Contains(e.Hint, "default_query_exec_mode") {
								t.Error(err)
							}
							return
						}
						if d.Allowed {
							allowed[i]++
						}
						_, err = client.Hit(t.Context(), pgclient.HitParams{Limit: "none", Subject: "u1"})
						if mode != pgx.QueryExecModeCacheStatement || keepsStatements {
							wantKind(t, err, pgclient.ErrUnknownLimit)
						}
					}
				})
			}
			wg.Wait()
			if mode == pgx.QueryExecModeCacheStatement && !keepsStatements {
				return
			}
			for i, n := range allowed {
				want(t, fmt.Sprintf("hits allowed to caller %d", i), n, quota)
			}
		})
	}

	t.Run("TimeoutBinds", func(t *testing.T) {
		client := open(t, pgx.QueryExecModeExec)
		db.exec(t, `create or replace function pglimit.pglimit_version() returns text language sql as 'select pg_sleep(60)::text'`)
		_, err := client.Version(t.Context())
		want(t, "code", wantKind(t, err, pgclient.ErrUnavailable).Code, "57014")
	})
}

// findPgBouncer returns the program, and whether its version keeps prepared statements in transaction mode.
func findPgBouncer(t *testing.T) (program string, keepsStatements bool) {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // Debian's place, outside most paths
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("pgbouncer is not installed: tests/setup/system.sh pgbouncer")
		}
		t.Skip("pgbouncer is not installed: tests/setup/system.sh pgbouncer")
	}
	out := must(exec.Command(program, "--version").Output())(t)
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor); err != nil {
		t.Fatalf("version of pgbouncer: %v in %q", err, out)
	}
	return program, major > 1 || minor >= 21
}

// startPgBouncer runs PgBouncer in transaction mode before the database of dsn, and returns its port.
func startPgBouncer(t *testing.T, program string, keepsStatements bool, dsn string) (port int) {
	t.Helper()
	config := must(pgx.ParseConfig(dsn))(t)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	port = listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()

	dir := t.TempDir()
	file := filepath.Join(dir, "pgbouncer.ini")
	ini := fmt.Sprintf(`[databases]
%s = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, config.Database, config.Host, config.Port, config.User, config.Password, port)
	if keepsStatements {
		ini += "max_prepared_statements = 100\n"
	}
	if err := os.WriteFile(file, []byte(ini), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, file)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // which pgbouncer refuses to be
		nobody := must(user.Lookup("nobody"))(t)
		uid, gid := must(strconv.Atoi(nobody.Uid))(t), must(strconv.Atoi(nobody.Gid))(t)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := errors.Join(os.Chown(file, uid, gid), os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	log := must(cmd.StderrPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up, logged := make(chan bool, 1), make(chan string, 1)
	go func() {
		var lines strings.Builder
		for scanner := bufio.NewScanner(log); scanner.Scan(); {
			fmt.Fprintln(&lines, scanner.Text())
			if strings.Contains(scanner.Text(), "process up") {
				up <- true
			}
		}
		close(up)
		logged <- lines.String()
	}()
	t.Cleanup(func() {
		stop()
		lines := <-logged
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(lines)
		}
	})
	if !<-up {
		t.Fatal("pgbouncer did not start")
	}
	return port
}
