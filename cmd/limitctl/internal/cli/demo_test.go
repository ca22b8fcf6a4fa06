package cli

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pglimit/pglimit/internal/localpg"
	"github.com/pglimit/pglimit/pgclient"
)

// runDemoEnv makes the test binary `limitctl demo`.
const runDemoEnv = "PGLIMIT_TEST_DEMO"

// The demo starts its own program as its replicas, which here is the test binary.
func init() {
	if os.Getenv(demoReplicaEnv) != "" || os.Getenv(runDemoEnv) != "" {
		os.Exit(Main(context.Background(), []string{"demo"}))
	}
}

func TestDemo(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute")
	}
	if _, err := localpg.FindBinaries(); os.Getenv("CI") == "" && errors.Is(err, localpg.ErrNoBinaries) {
		t.Skip(err)
	}
	t.Run("AsWhoeverTests", func(t *testing.T) {
		t.Parallel()
		b := setup(false)
		started := time.Now()
		if code := b.run("demo"); code != exitOK {
			t.Errorf("exit code %d, stderr %s", code, b.errOut)
		}
		if took := time.Since(started); took > time.Minute {
			t.Errorf("took %v", took)
		}
		checkDemo(t, b.out.String())
	})
	// Root's server runs as somebody else, so a demo of root shows little of anybody else's.
	t.Run("AsNobody", func(t *testing.T) {
		t.Parallel()
		setpriv, err := exec.LookPath("setpriv")
		if err != nil || os.Getuid() != 0 {
			t.Skip("needs root and setpriv, to become nobody; whoever is not root is tested above")
		}
		if binaries, err := localpg.FindBinaries(); err == nil {
			skipUnlessReachable(t, binaries)
		}
		program := copyOfItself(t)
		home := openFolder(t)
		cmd := exec.CommandContext(t.Context(), setpriv, "--reuid=nobody", "--regid=65534", "--clear-groups", program)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), runDemoEnv+"=1", "TMPDIR="+home, "HOME="+home)
		var errOut strings.Builder
		cmd.Stderr = &errOut
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v, stderr %s", err, errOut.String())
		}
		checkDemo(t, string(out))
		left, err := os.ReadDir(home)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// checkDemo fails unless this is what a demo in a pipe prints.
func checkDemo(t *testing.T, out string) {
	t.Helper()
	for _, want := range []string{
		"Caps kept",
		"20 allowed of a quota of 20 a minute",
		"killed with SIGKILL while it held: ",
		"place taken again by permit ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output", want)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("escape sequences in a pipe")
	}
	if t.Failed() {
		t.Log(out)
	}
}

// copyOfItself returns a copy of the test binary that anybody may run: the one that go test made lies
// in a folder of its owner's.
func copyOfItself(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	folder := openFolder(t)
	path := filepath.Join(folder, "limitctl.test")
	if err := errors.Join(os.WriteFile(path, program, 0o600), os.Chmod(path, 0o755)); err != nil {
		t.Fatal(err)
	}
	skipUnlessReachable(t, folder)
	return path
}

// openFolder is TempDir for everybody.
func openFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "limitctl-demo-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	return folder
}

func skipUnlessReachable(t *testing.T, dir string) {
	t.Helper()
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o001 == 0 {
			t.Skipf("nobody cannot reach %s", dir)
		}
		if dir == filepath.Dir(dir) {
			return
		}
	}
}

func TestDemoTellsAnExceededCap(t *testing.T) {
	t.Parallel()
	now := time.Now()
	row := func(id int64, holder string, claimed, expires time.Duration) pgclient.PermitRow {
		return pgclient.PermitRow{ID: id, Holder: holder, ClaimedAt: now.Add(claimed), ExpiresAt: now.Add(expires)}
	}
	for name, tt := range map[string]struct {
		rows []pgclient.PermitRow
		want string
	}{
		"Holder": {
			[]pgclient.PermitRow{row(1, "alice", 0, 9), row(2, "alice", 1, 9), row(3, "alice", 2, 9)},
			"alice had 3 permits at once, the cap is 2",
		},
		"Installation": {
			[]pgclient.PermitRow{row(1, "alice", 0, 9), row(2, "bob", 1, 9), row(3, "bob", 2, 9), row(4, "carol", 3, 9)},
			"4 permits were live at once, the cap is 3",
		},
		"LapsedBeforeTheLastClaim": {
			[]pgclient.PermitRow{row(1, "alice", 0, 3), row(2, "bob", 1, 9), row(3, "bob", 2, 9), row(4, "carol", 3, 9)},
			"",
		},
	} {
		streams, _, _, _ := testIO(false)
		d := newDemoShow(streams, false)
		d.look(tt.rows, time.Second)
		got := strings.Join(d.summary(), "; ")
		if tt.want == "" && strings.Contains(got, "cap is") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
