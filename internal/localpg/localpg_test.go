package localpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestMain lets a test start this binary again as a process that starts a server and is then killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("LOCALPG_TEST_ORPHAN"); dir != "" {
		orphan(dir)
	}
	os.Exit(m.Run())
}

func orphan(dir string) {
	s, err := Start(context.Background(), Options{Dir: dir, Settings: quick()})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(s.proc.pid, s.DSN("postgres"))
	select {}
}

func quick() map[string]string {
	return map[string]string{"fsync": "off", "max_connections": "20", "shared_buffers": "16MB"}
}

// folder is a place for servers that their unprivileged user can reach (t.TempDir's parents are
// private to the test's user in some environments) with a name short enough for a socket.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localpg-test-")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	return dir
}

func start(t *testing.T, opts Options) *Server {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = folder(t)
	}
	if opts.Settings == nil {
		opts.Settings = quick()
	}
	s, err := Start(t.Context(), opts)
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop(context.Background())) })
	return s
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func scan[T any](t *testing.T, conn *pgx.Conn, sql string) (v T) {
	t.Helper()
	must(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

// listening tells whether anything still accepts connections on the server's port.
func listening(port int) bool {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("ServesUntilStoppedAndLeavesNothing", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		s := start(t, Options{Dir: dir})
		conn := connect(t, s.DSN("postgres"))
		if !scan[bool](t, conn, "select usesuper from pg_user where usename = current_user") {
			t.Error("the DSN is not a superuser's")
		}
		if got := scan[string](t, conn, "show server_encoding"); got != "UTF8" {
			t.Errorf("server_encoding = %s, want UTF8", got)
		}
		must(t, s.Stop(t.Context()))
		must(t, s.Stop(t.Context())) // again does nothing
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("left behind: %v %v", entries, err)
		}
		if listening(s.Port) {
			t.Error("still listening after Stop")
		}
		if err := s.Restart(t.Context()); err == nil {
			t.Error("Restart after Stop succeeded")
		}
	})

	t.Run("AppliesSettings", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{Settings: map[string]string{"max_connections": "17", "cluster_name": `it's a \ name`}})
		conn := connect(t, s.DSN("postgres"))
		if got := scan[string](t, conn, "show max_connections"); got != "17" {
			t.Errorf("max_connections = %s, want 17", got)
		}
		if got := scan[string](t, conn, "show cluster_name"); got != `it's a \ name` {
			t.Errorf("cluster_name = %s", got)
		}
		if got := scan[string](t, conn, "show fsync"); got != "on" {
			t.Errorf("fsync = %s although nobody asked for off", got)
		}
	})

	t.Run("RefusesStrangersOnThePort", func(t *testing.T) {
		t.Parallel()
		s := start(t, Options{})
		_, err := pgx.Connect(t.Context(), strings.Replace(s.DSN("postgres"), s.password, "guess", 1))
		if err == nil || !strings.Contains(err.Error(), "28P01") {
			t.Errorf("connecting with a wrong password: %v, want 28P01", err)
		}
	})

	t.Run("FailsWithTheServersWords", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		_, err := Start(t.Context(), Options{Dir: dir, Settings: map[string]string{"shared_buffers": "a lot"}})
		if err == nil || !strings.Contains(err.Error(), "shared_buffers") {
			t.Errorf("got %v, want postgres's complaint about shared_buffers", err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("left behind: %v", entries)
		}
	})

	t.Run("GivesUpWithItsContext", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		dir := folder(t)
		if _, err := Start(ctx, Options{Dir: dir}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("left behind: %v", entries)
		}
	})

	t.Run("FitsAFolderTooDeepForASocket", func(t *testing.T) {
		t.Parallel()
		deep := filepath.Join(folder(t), strings.Repeat("d", 90))
		must(t, os.Mkdir(deep, 0o755))
		connect(t, start(t, Options{Dir: deep}).DSN("postgres"))
	})
}

func TestKill(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	conn := connect(t, s.DSN("postgres"))
	_, err := conn.Exec(t.Context(), `
		create table kept as select 1 as n;
		create unlogged table emptied as select 1 as n;
		checkpoint`)
	must(t, err)
	// A backend in the middle of something does not notice by itself that its postmaster is gone.
	busy := connect(t, s.DSN("postgres"))
	pid := int(busy.PgConn().PID())
	slept := make(chan error, 1)
	go func() {
		_, err := busy.Exec(context.Background(), "do $$ begin loop end loop; end $$")
		slept <- err
	}()

	must(t, s.Kill())
	must(t, s.Kill()) // again does nothing
	if err := <-slept; err == nil {
		t.Error("a session survived Kill")
	}
	if runtime.GOOS == "linux" && alive(pid) {
		t.Error("a backend survived Kill")
	}
	if listening(s.Port) {
		t.Error("still listening after Kill")
	}

	port := s.Port
	must(t, s.Restart(t.Context()))
	if s.Port != port {
		t.Errorf("port changed from %d to %d", port, s.Port)
	}
	conn = connect(t, s.DSN("postgres"))
	if got := scan[int](t, conn, "select count(*) from kept"); got != 1 {
		t.Errorf("the logged table has %d rows after the crash, want 1", got)
	}
	if got := scan[int](t, conn, "select count(*) from emptied"); got != 0 {
		t.Errorf("the unlogged table has %d rows: that was no crash", got)
	}

	// Stop of a killed server cleans up what the server itself could not.
	must(t, s.Kill())
	id := sharedMemory(t, s.DataDir)
	if !segmentExists(t, id) {
		t.Fatalf("the killed server's segment %s is not in the kernel's list: the test looks wrongly", id)
	}
	must(t, s.Stop(t.Context()))
	if segmentExists(t, id) {
		t.Errorf("Stop left the shared memory segment %s behind", id)
	}
}

// sharedMemory returns the id of the server's System V shared memory segment.
func sharedMemory(t *testing.T, dataDir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	must(t, err)
	return strings.Fields(strings.Split(string(data), "\n")[6])[1]
}

func segmentExists(t *testing.T, id string) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		t.Skip("no list of the kernel's segments to look at: ", err)
	}
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) > 1 && f[1] == id {
			return true
		}
	}
	return false
}

func TestRestart(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	conn := connect(t, s.DSN("postgres"))
	_, err := conn.Exec(t.Context(), "create unlogged table kept as select 1 as n")
	must(t, err)
	_, err = conn.Exec(t.Context(), "alter system set work_mem = '5MB'")
	must(t, err)
	must(t, s.Restart(t.Context()))

	conn = connect(t, s.DSN("postgres"))
	if got := scan[int](t, conn, "select count(*) from kept"); got != 1 {
		t.Error("a clean restart emptied an unlogged table")
	}
	if got := scan[string](t, conn, "show work_mem"); got != "5MB" {
		t.Errorf("work_mem = %s: ALTER SYSTEM had no effect", got)
	}
}

// TestNoOrphans: a parent that gets SIGKILL can clean nothing up itself.
func TestStandby(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	standby, err := s.Standby(t.Context(), Options{Dir: folder(t), Settings: quick()})
	must(t, err)
	t.Cleanup(func() { must(t, standby.Stop(context.Background())) })
	conn, there := connect(t, s.DSN("postgres")), connect(t, standby.DSN("postgres"))
	_, err = conn.Exec(t.Context(), "create table made_since (n int)")
	must(t, err)
	for !scan[bool](t, there, "select to_regclass('made_since') is not null") {
		time.Sleep(5 * time.Millisecond)
	}
	if !scan[bool](t, there, "select pg_is_in_recovery()") {
		t.Error("the standby is none")
	}
	must(t, standby.Kill())
	must(t, standby.Restart(t.Context()))
	there = connect(t, standby.DSN("postgres"))
	if !scan[bool](t, there, "select pg_promote()") {
		t.Error("the standby was not promoted")
	}
	_, err = there.Exec(t.Context(), "create table made_here (n int)")
	must(t, err)

	must(t, s.Kill())
	if _, err := s.Standby(t.Context(), Options{}); err == nil {
		t.Error("a standby was made of a server that is not running")
	}
}

func TestNoOrphans(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a child of its parent's death")
	}
	dir := folder(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOCALPG_TEST_ORPHAN="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	first, dsn, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal("the child says: ", line)
	}
	conn := connect(t, dsn)
	processes := append(childrenOf(pid), pid)

	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	deadline := time.Now().Add(10 * time.Second)
	for _, pid := range processes {
		for alive(pid) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d of the server outlives its parent", pid)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the server still answers")
	}

	// What is left on disk goes with the next start, which leaves the folders in use alone.
	again := start(t, Options{Dir: dir})
	second := start(t, Options{Dir: dir})
	connect(t, again.DSN("postgres"))
	connect(t, second.DSN("postgres"))
	if found, _ := filepath.Glob(filepath.Join(dir, dirPrefix+"*")); len(found) != 2 {
		t.Errorf("%d server folders, want those of the 2 that run: %v", len(found), found)
	}
}

func TestFindBinaries(t *testing.T) {
	t.Run("PrefersTheEnvironment", func(t *testing.T) {
		dir := t.TempDir()
		for _, name := range []string{"initdb", "postgres", "initdb.exe", "postgres.exe"} {
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
		}
		t.Setenv("PGLIMIT_PG_BIN", dir)
		if got, err := FindBinaries(); err != nil || got != dir {
			t.Errorf("got %q, %v; want %q", got, err, dir)
		}
	})

	t.Run("NamesTheVariableWhenItIsWrong", func(t *testing.T) {
		t.Setenv("PGLIMIT_PG_BIN", t.TempDir())
		_, err := FindBinaries()
		if !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), "PGLIMIT_PG_BIN=") {
			t.Errorf("got %v", err)
		}
	})

	t.Run("ReadsVersionsAsNumbers", func(t *testing.T) {
		if majorIn("/usr/lib/postgresql/9.6/bin") >= majorIn("/usr/lib/postgresql/15/bin") {
			t.Error("9.6 is taken for newer than 15")
		}
	})

	t.Run("FailsForAFolderWithoutServer", func(t *testing.T) {
		if _, err := Start(t.Context(), Options{BinDir: t.TempDir()}); !errors.Is(err, ErrNoBinaries) {
			t.Errorf("got %v, want ErrNoBinaries", err)
		}
	})
}
