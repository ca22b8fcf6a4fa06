//go:build !linux

package localpg

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Outside Linux there is no death signal and no /proc: a server outlives a parent that is killed,
// its folder is not swept, and root is told to become somebody else.

type account struct{ name string }

func serverAccount() (*account, error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("localpg: PostgreSQL refuses to run as root; run this as an ordinary user")
	}
	return nil, nil
}

func (*account) own(string) error { return nil }

func sysProcAttr(*account) *syscall.SysProcAttr { return nil }

// killAll asks for the immediate shutdown, which flushes nothing either, and kills the postmaster
// when that takes too long.
func killAll(proc *process) {
	found, err := os.FindProcess(proc.pid)
	if err != nil {
		return
	}
	_ = found.Signal(syscall.SIGQUIT)
	select {
	case <-proc.done:
	case <-time.After(6 * time.Second): // its own patience with backends is 5 s
		_ = found.Kill()
	}
}

func releaseMemory(string) {}

func lockDir(string) (*os.File, error) { return nil, nil }

func sweep(string, *account) {}
