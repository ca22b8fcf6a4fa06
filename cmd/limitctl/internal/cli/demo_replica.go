package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

// demoReplicaEnv makes `limitctl demo` a replica; its job is the value. In the environment, since
// arguments show in ps and the job holds a password.
const demoReplicaEnv = "PGLIMIT_DEMO_REPLICA"

type demoJob struct {
	DatabaseURL string
	Number      int
}

var demoHolders = []string{"alice", "bob", "carol"}

// What replicas tell, a line of JSON each.
const (
	demoAnswerClaim = "claim"
	demoAnswerHit   = "hit"
	demoNoAnswer    = "error"
)

type demoEvent struct {
	Answer  string          `json:"answer"`
	Message string          `json:"message,omitempty"`
	OK      bool            `json:"ok"`
	Reason  pgclient.Reason `json:"reason,omitempty"`
}

// demoNote goes with each permit, so that the viewer can tell whose it is.
type demoNote struct {
	Replica int `json:"replica"`
}

// demoReplica works until its input ends, which it also does when the parent dies. A line of input
// makes its work long.
func demoReplica(ctx context.Context, value string, stdin io.Reader, stdout io.Writer) error {
	var job demoJob
	if err := json.Unmarshal([]byte(value), &job); err != nil {
		return fmt.Errorf("the job of a replica: %w", err)
	}
	client, err := pgclient.Open(ctx, job.DatabaseURL)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Version(ctx); err != nil {
		return err
	}
	note, err := json.Marshal(demoNote{Replica: job.Number})
	if err != nil {
		return err
	}

	var mu sync.Mutex
	encoder := json.NewEncoder(stdout)
	tell := func(e demoEvent, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			e = demoEvent{Answer: demoNoAnswer, Message: err.Error()}
		}
		_ = encoder.Encode(e) // fails when the parent is gone, and then the input has ended too
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var long atomic.Bool
	go func() {
		for lines := bufio.NewScanner(stdin); lines.Scan(); {
			long.Store(true)
		}
		cancel()
	}()

	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				demoExport(ctx, client, note, &long, tell)
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			decision, err := client.Hit(ctx, pgclient.HitParams{Limit: demoLimit, Subject: demoSubject})
			tell(demoEvent{Answer: demoAnswerHit, OK: decision.Allowed, Reason: decision.Reason}, err)
			demoPause(ctx, between(150, 350))
		}
	})
	wg.Wait()
	return nil
}

// demoExport asks for a permit, works while it has one, and gives it back.
func demoExport(ctx context.Context, client *pgclient.Client, note []byte, long *atomic.Bool, tell func(demoEvent, error)) {
	lease := demoLease
	permit, err := client.ClaimPermit(ctx, pgclient.ClaimPermitParams{
		Endpoint: demoEndpoint,
		Holder:   demoHolders[rand.IntN(len(demoHolders))],
		Lease:    &lease,
		Note:     note,
	})
	switch {
	case err != nil && errors.Is(err, context.Canceled):
		return // it was given back at once
	case err != nil:
		tell(demoEvent{}, err)
		demoPause(ctx, between(100, 200))
		return
	}
	tell(demoEvent{Answer: demoAnswerClaim, OK: permit.Granted, Reason: permit.Reason}, nil)
	if !permit.Granted {
		demoPause(ctx, min(permit.RetryAfter, between(50, 150)))
		return
	}
	work := between(100, 400)
	if long.Load() {
		work = demoLease * 3 / 4
	}
	demoPause(ctx, work)
	if _, err := permit.Release(ctx); err != nil {
		tell(demoEvent{}, err)
	}
	demoPause(ctx, between(10, 60))
}

func between(low, high int) time.Duration {
	return time.Duration(low+rand.IntN(high-low)) * time.Millisecond
}

func demoPause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// demoProcess is a replica as the parent sees it.
type demoProcess struct {
	cmd    *exec.Cmd
	killed bool
	stdin  io.WriteCloser
	told   chan struct{} // closed when all it told was heard
}

// startDemoReplica runs this very program as a replica, and hands what it tells to hear.
func startDemoReplica(ctx context.Context, number int, dsn string, hear func(demoEvent)) (*demoProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(demoJob{DatabaseURL: dsn, Number: number})
	if err != nil {
		return nil, err
	}
	p := &demoProcess{cmd: exec.CommandContext(ctx, self, "demo"), told: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), demoReplicaEnv+"="+string(job))
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.told)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var e demoEvent
			if json.Unmarshal(lines.Bytes(), &e) == nil { // the last line of a killed one may be cut
				hear(e)
			}
		}
	}()
	return p, nil
}

// kill sends SIGKILL: the replica can release nothing.
func (p *demoProcess) kill() {
	p.killed = true
	_ = p.cmd.Process.Kill()
	<-p.told
	_ = p.cmd.Wait()
}

// end asks a replica to finish, and waits for it.
func (p *demoProcess) end() error {
	_ = p.stdin.Close() // fails when it has ended already, and then Wait says why
	<-p.told
	return p.cmd.Wait()
}
