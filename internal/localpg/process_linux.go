package localpg

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// account is the unprivileged user a server runs as when we are root, which initdb and postgres
// refuse to be. The nil account means ourselves.
type account struct {
	name     string
	uid, gid int
}

func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("localpg: %w", err)
		}
		return &account{name: name, uid: uid, gid: gid}, nil
	}
	return nil, errors.New("localpg: PostgreSQL refuses to run as root, and there is neither a user " +
		"postgres nor nobody to run it as; add one, or run this as an ordinary user")
}

// own hands a path to the account.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	if err := os.Chown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("localpg: %w", err)
	}
	return nil
}

// sysProcAttr makes a child that runs as the account, ends when we end, and does not get the
// terminal's Ctrl-C, so that it is still there for whoever cleans up after that.
func sysProcAttr(a *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Setpgid: true,
		// The "immediate" shutdown: unlike SIGKILL it lets the postmaster end busy backends and give
		// its shared memory back.
		Pdeathsig: syscall.SIGQUIT,
	}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

// killAll kills the postmaster and all its children, and waits for the children: a server does not
// start while one of them is still attached to the old shared memory.
func killAll(proc *process) {
	// Stopped, it forks no more while its children are collected. (They lead process groups of
	// their own, so one signal to a group does not reach them.)
	_ = syscall.Kill(proc.pid, syscall.SIGSTOP)
	children := childrenOf(proc.pid)
	for _, pid := range append(children, proc.pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, pid := range children {
		for alive(pid) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
}

func childrenOf(parent int) []int {
	var children []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if _, ppid, ok := stat(pid); ok && ppid == parent {
			children = append(children, pid)
		}
	}
	return children
}

// alive tells whether a process holds anything: a zombie that nobody has reaped does not.
func alive(pid int) bool {
	state, _, ok := stat(pid)
	return ok && state != 'Z' && state != 'X'
}

// stat reads a process's state and parent from /proc.
func stat(pid int) (state byte, ppid int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	// pid (name) state ppid …, where the name may hold anything, parentheses included.
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 {
		return 0, 0, false
	}
	ppid, err = strconv.Atoi(string(fields[1]))
	return fields[0][0], ppid, err == nil
}

// releaseMemory removes the System V segment that a killed server left in the kernel: postgres would
// do that when it next starts on the data, which is about to be removed.
func releaseMemory(dataDir string) {
	data, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	if err != nil {
		return // shut down in order
	}
	lines := strings.Split(string(data), "\n")
	const shmem = 6 // "key id"
	if len(lines) <= shmem {
		return
	}
	if fields := strings.Fields(lines[shmem]); len(fields) == 2 {
		if id, err := strconv.Atoi(fields[1]); err == nil {
			_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
	}
}

// lockDir marks the folder as in use for as long as this process lives.
func lockDir(dir string) (*os.File, error) {
	// Locked under another name first: sweep must never meet the file unlocked.
	f, err := os.Create(filepath.Join(dir, "lock.new"))
	if err != nil {
		return nil, fmt.Errorf("localpg: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("localpg: cannot lock %s: %w", f.Name(), err)
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, "lock")); err != nil {
		f.Close()
		return nil, fmt.Errorf("localpg: %w", err)
	}
	return f, nil
}

// sweep removes the folders of servers whose parent died without Stop. The kernel released their
// locks, which is what tells them from the ones in use.
func sweep(base string, a *account) {
	uid := os.Geteuid()
	if a != nil {
		uid = a.uid
	}
	dirs, _ := filepath.Glob(filepath.Join(base, dirPrefix+"*"))
	for _, dir := range dirs {
		// Only our own: in a shared folder anybody may make one of that name.
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || int(info.Sys().(*syscall.Stat_t).Uid) != uid {
			continue
		}
		fd, err := unix.Open(filepath.Join(dir, "lock"), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = os.RemoveAll(dir)
		}
		_ = unix.Close(fd)
	}
}
