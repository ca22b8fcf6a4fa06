// Package localpg starts a private, throw-away PostgreSQL server from the binaries at hand.
//
// Tests and demos use it so that `go test ./...` needs nothing but the server binaries: no running
// service, no container, no configuration. A server has a folder of its own under the system's
// temporary folder, a free port on the loopback address and a random superuser password. It ends
// with the process that started it, however that process ends (on Linux), and Stop leaves nothing
// behind.
package localpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	mrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// superuser is the bootstrap role of every server this package starts.
const superuser = "postgres"

// dirPrefix names the servers' folders, so that sweep knows them again.
const dirPrefix = "pglimit-localpg-"

// Options say how to start a server. The zero value starts the newest installed version with
// PostgreSQL's own defaults.
type Options struct {
	// BinDir holds initdb and postgres. Defaults to what [FindBinaries] finds.
	BinDir string

	// Dir is the folder in which the server's own folder is made. When started by root it must be
	// reachable by the unprivileged user that the server runs as. Defaults to [os.TempDir].
	Dir string

	// Log receives the server's log. Defaults to keeping only the end of it, for error messages.
	Log io.Writer

	// Preload lists the libraries for shared_preload_libraries. Defaults to none.
	Preload []string

	// Settings are written to postgresql.conf, for example {"fsync": "off"}. Defaults to none.
	Settings map[string]string
}

// Server is a running (or killed, see [Server.Kill]) private PostgreSQL server. Its methods may be
// called from several goroutines.
type Server struct {
	BinDir  string // where its binaries are
	DataDir string // its data directory, readable by its owner and root only
	Port    int    // its TCP port on 127.0.0.1, kept over Restart

	account  *account // nil: runs as ourselves
	dir      string   // holds everything of this server
	lock     *os.File // flocked while this process lives: tells sweep that dir is in use
	log      *tail
	password string

	mu      sync.Mutex
	proc    *process // the last postmaster, perhaps ended
	stopped bool
}

// Start makes a new database cluster, starts a server on it and returns once it accepts
// connections. The context bounds the start only. Callers should Stop the server; one that does not
// (os.Exit, a crash, SIGKILL) takes the server down with it, and its folder is removed by the next
// Start on the same machine.
func Start(ctx context.Context, opts Options) (_ *Server, err error) {
	s, err := newServer(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.Stop(context.WithoutCancel(ctx))
		}
	}()
	if err := s.initdb(ctx); err != nil {
		return nil, err
	}
	if err := s.configure(opts); err != nil {
		return nil, err
	}
	if err := s.startOnFreePort(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Standby makes a hot standby of a running server, which streams from it and can be promoted, and
// returns once it accepts connections. Of opts BinDir counts for nothing: it is the primary's. The
// primary is shut down cleanly for the copy and started again: files at rest can be copied without
// pg_basebackup, which not every distribution of the binaries has.
func (s *Server) Standby(ctx context.Context, opts Options) (_ *Server, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || !s.proc.running() {
		return nil, errors.New("localpg: cannot make a standby: the server is not running")
	}
	opts.BinDir = s.BinDir
	standby, err := newServer(ctx, opts)
	if err != nil {
		return nil, err
	}
	standby.password = s.password
	defer func() {
		if err != nil {
			_ = standby.Stop(context.WithoutCancel(ctx))
		}
	}()

	if err := s.proc.end(ctx, syscall.SIGINT); err != nil {
		return nil, fmt.Errorf("localpg: the server did not shut down: %w%s", err, s.log)
	}
	err = standby.copyData(s.DataDir)
	if err := errors.Join(err, s.start(ctx)); err != nil {
		return nil, err
	}
	signal := filepath.Join(standby.DataDir, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return nil, fmt.Errorf("localpg: %w", err)
	}
	if err := s.account.own(signal); err != nil {
		return nil, err
	}
	settings := map[string]string{
		"primary_conninfo": fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s", s.Port, superuser, s.password),
	}
	maps.Copy(settings, opts.Settings)
	opts.Settings = settings
	if err := standby.configure(opts); err != nil {
		return nil, err
	}
	if err := standby.startOnFreePort(ctx); err != nil {
		return nil, err
	}
	return standby, nil
}

// newServer makes the server's own folder. The caller stops the server, should the next step fail.
func newServer(ctx context.Context, opts Options) (_ *Server, err error) {
	bin := opts.BinDir
	if bin == "" {
		if bin, err = FindBinaries(); err != nil {
			return nil, err
		}
	} else if !hasBinaries(bin) {
		return nil, fmt.Errorf("%w: %s does not hold initdb and postgres", ErrNoBinaries, bin)
	}
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}

	base := opts.Dir
	if base == "" {
		base = os.TempDir()
	}
	sweep(base, account)
	dir, err := os.MkdirTemp(base, dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("localpg: cannot make the server's folder: %w", err)
	}
	s := &Server{
		BinDir:   bin,
		DataDir:  filepath.Join(dir, "data"),
		account:  account,
		dir:      dir,
		log:      &tail{next: opts.Log},
		password: rand.Text(),
	}
	s.lock, err = lockDir(dir)
	if err := errors.Join(err, account.own(dir)); err != nil {
		_ = s.Stop(context.WithoutCancel(ctx))
		return nil, err
	}
	return s, nil
}

// copyData copies the data directory of a server that has been shut down.
func (s *Server) copyData(from string) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		to := filepath.Join(s.DataDir, strings.TrimPrefix(path, from))
		if entry.IsDir() {
			err = os.Mkdir(to, info.Mode().Perm())
		} else {
			err = copyFile(to, path, info.Mode().Perm())
		}
		return errors.Join(err, s.account.own(to))
	})
	if err != nil {
		return fmt.Errorf("localpg: cannot copy the server's data: %w", err)
	}
	return nil
}

func copyFile(to, from string, perm fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// DSN returns the connection string of the superuser for a database, "postgres" being the one that
// exists from the start.
func (s *Server) DSN(dbname string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)),
		Path:     "/" + dbname,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Kill ends the server as a crash does: every one of its processes gets SIGKILL, so nothing is
// flushed, nobody is told, and the next Restart goes through crash recovery, which empties UNLOGGED
// tables. It returns when all of them are gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

// Restart starts the server again on the same data and port, after a clean shutdown when it is
// still running and through crash recovery after Kill.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.stopped {
		return errors.New("localpg: cannot restart: the server was stopped and its data removed")
	}
	if s.proc.running() {
		// SIGINT is the "fast" shutdown: sessions are cut, the data is checkpointed.
		if err := s.proc.end(ctx, syscall.SIGINT); err != nil {
			return fmt.Errorf("localpg: the server did not shut down: %w%s", err, s.log)
		}
	}
	return s.start(ctx)
}

// Stop ends the server at once and removes its folder. It does nothing when called again.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.stopped {
		return nil
	}
	s.stopped = true

	var errs []error
	if s.proc.running() {
		// SIGQUIT, the "immediate" shutdown: a checkpoint of data about to be deleted is a waste.
		if err := s.proc.end(ctx, syscall.SIGQUIT); err != nil {
			errs = append(errs, s.kill())
		}
	}
	releaseMemory(s.DataDir)
	errs = append(errs, os.RemoveAll(s.dir))
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// initdb makes the cluster.
func (s *Server) initdb(ctx context.Context) error {
	pwfile := filepath.Join(s.dir, "password")
	if err := os.WriteFile(pwfile, []byte(s.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("localpg: %w", err)
	}
	if err := s.account.own(pwfile); err != nil {
		return err
	}
	defer os.Remove(pwfile)

	var out []byte
	var err error
	// C.UTF-8 orders by bytes on every machine and still knows what a letter is; systems without it
	// get plain C.
	for _, locale := range []string{"C.UTF-8", "C"} {
		cmd := s.command(ctx, "initdb", "--pgdata="+s.DataDir, "--username="+superuser,
			"--pwfile="+pwfile, "--encoding=UTF8", "--locale="+locale, "--no-sync",
			// The folder keeps strangers from the socket, but anyone on the machine reaches the port,
			// and a superuser may run programs: hence a password there. md5, since SCRAM's thousands
			// of hash rounds make a connection take 11 ms instead of 2, and tests open many; initdb
			// sets password_encryption to match, for the roles that tests create.
			"--auth-local=trust", "--auth-host=md5")
		if out, err = cmd.CombinedOutput(); err == nil {
			return nil
		}
		if ctx.Err() != nil || !bytes.Contains(out, []byte("locale")) {
			break
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("localpg: initdb failed: %w%s%s", err, s.hint(err), indent(out))
}

// configure appends the settings to postgresql.conf, where the last one given wins and where tests
// can still change them with ALTER SYSTEM (command-line settings could not be).
func (s *Server) configure(opts Options) error {
	settings := map[string]string{
		// In the data directory, so that a kill leaves no segments in /dev/shm.
		"dynamic_shared_memory_type": "mmap",
		"listen_addresses":           "127.0.0.1",
		"shared_preload_libraries":   strings.Join(opts.Preload, ","),
		"unix_socket_directories":    s.dir,
	}
	// A socket's path must fit in 107 bytes. In a folder deeper than that TCP has to do.
	if len(s.dir)+len("/.s.PGSQL.65535.lock") > 107 {
		settings["unix_socket_directories"] = ""
	}
	for name, value := range opts.Settings {
		settings[name] = value
	}

	var conf strings.Builder
	conf.WriteString("\n# localpg\n")
	for name, value := range settings {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.NewReplacer(`'`, `''`, `\`, `\\`).Replace(value))
	}
	f, err := os.OpenFile(filepath.Join(s.DataDir, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("localpg: %w", err)
	}
	_, err = f.WriteString(conf.String())
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("localpg: %w", err)
	}
	return nil
}

// startOnFreePort picks a port and starts the server, again with another port when somebody took
// the first one in between.
func (s *Server) startOnFreePort(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.Port = port
		err = s.start(ctx)
		if err == nil || attempt == 5 || !s.log.contains("could not create any TCP/IP sockets") {
			return err
		}
	}
}

// start runs postgres and waits until it accepts connections. The caller holds mu, or is Start.
func (s *Server) start(ctx context.Context) error {
	s.log.reset()
	cmd := s.command(context.WithoutCancel(ctx), "postgres", "-D", s.DataDir, "-p", strconv.Itoa(s.Port))
	cmd.Stderr = s.log
	proc, err := launch(cmd)
	if err != nil {
		return fmt.Errorf("localpg: cannot start postgres: %w%s", err, s.hint(err))
	}
	s.proc = proc

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !s.ready() {
		select {
		case <-tick.C:
		case <-proc.done:
			return fmt.Errorf("localpg: postgres ended while starting: %v%s", proc.err, s.log)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("localpg: postgres did not start in time: %w%s", ctx.Err(), s.log), s.kill())
		}
	}
	return nil
}

// ready reads the postmaster's state from its pid file, as pg_ctl does: no connection, no password,
// and no noise in the log.
func (s *Server) ready() bool {
	data, err := os.ReadFile(filepath.Join(s.DataDir, "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(data), "\n")
	const pid, state = 0, 7
	// The file of a killed server is still there with the pid of that one.
	return len(lines) > state && lines[pid] == strconv.Itoa(s.proc.pid) &&
		slices.Contains([]string{"ready", "standby"}, strings.TrimSpace(lines[state]))
}

// kill is Kill for callers that hold mu.
func (s *Server) kill() error {
	if !s.proc.running() {
		return nil
	}
	killAll(s.proc)
	select {
	case <-s.proc.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("localpg: postgres (pid %d) is still there 10 s after SIGKILL", s.proc.pid)
	}
}

// command prepares one of the server's programs: as its user, in a folder that user can enter, and
// without the caller's PG* variables, which would reach into it (PGDATA, PGOPTIONS, PGPORT, …).
func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.BinDir, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") ||
			strings.HasPrefix(kv, "LANG") || strings.HasPrefix(kv, "HOME=")
	}), "LC_ALL=C", "HOME="+s.dir)
	cmd.SysProcAttr = sysProcAttr(s.account)
	// Backends that outlive a killed postmaster for a moment must not hold up Wait.
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// hint explains the one failure that puzzles people who run the tests as root.
func (s *Server) hint(err error) string {
	if s.account == nil || !errors.Is(err, os.ErrPermission) {
		return ""
	}
	return fmt.Sprintf(" (started by root, the server runs as user %q, who must be able to enter %s and %s)",
		s.account.name, s.BinDir, filepath.Dir(s.dir))
}

// process is one run of the postmaster.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
}

// launch starts cmd from a thread that lives as long as the child does.
func launch(cmd *exec.Cmd) (*process, error) {
	proc := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the *thread* that forked ends, and Go ends idle threads.
		// Locked and never unlocked, this one ends with the goroutine, so after the child.
		runtime.LockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		proc.pid = cmd.Process.Pid
		started <- nil
		proc.err = cmd.Wait()
		close(proc.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return proc, nil
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end signals the process and waits until it has ended.
func (p *process) end(ctx context.Context, signal os.Signal) error {
	if found, err := os.FindProcess(p.pid); err == nil {
		_ = found.Signal(signal) // it may just have ended: done tells
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// freePort picks a port that is free now. It stays below the range from which Linux serves outgoing
// connections, so that none of those sits on the port when the server restarts.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + mrand.IntN(12000)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("localpg: no free port found: %w", err)
}

// tail is a writer that keeps the end of what was written, for error messages, and passes all of it
// on when there is a next.
type tail struct {
	next io.Writer

	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const keep = 8 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	if n := len(t.end) - keep; n > 0 {
		t.end = append(t.end[:0], t.end[n:]...)
	}
	if t.next != nil {
		return t.next.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return indent(t.end)
}

func (t *tail) contains(s string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Contains(t.end, []byte(s))
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = t.end[:0]
}

// indent sets a program's output below an error message.
func indent(out []byte) string {
	out = bytes.TrimSpace(out)
	if len(out) == 0 {
		return ""
	}
	return "\n    " + strings.ReplaceAll(string(out), "\n", "\n    ")
}
