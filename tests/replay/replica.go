package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglimit/pglimit/pgclient"
)

// limitName is the limit that the requests hit.
const limitName = "replay.address"

// replicaEnv marks a process as a replica; its job is the value. In the environment, since arguments
// show in ps and the job holds a password.
const replicaEnv = "PGLIMIT_REPLAY_REPLICA"

// job tells a replica what to do.
type job struct {
	DatabaseURL string
	Max         int64
	Per         time.Duration
	Tenant      string
}

// count is what an address was answered.
type count struct{ Allowed, Refused int64 }

func isReplica() bool { return os.Getenv(replicaEnv) != "" }

// replica connects, says so with a line, then makes a hit of every line it reads until the end of its
// input, and prints the counts by address.
func replica(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(replicaEnv)), &j); err != nil {
		return fmt.Errorf("the job of a replica: %w", err)
	}
	config, err := pgxpool.ParseConfig(j.DatabaseURL)
	if err != nil {
		return err
	}
	config.MaxConns = 1
	// What an application may do is all that this needs.
	config.ConnConfig.RuntimeParams["role"] = "pglimit_app"
	config.ConnConfig.RuntimeParams["application_name"] = "pglimit replay"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := pgclient.New(pool)
	if err != nil {
		return err
	}
	if _, err := client.Version(ctx); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, "ready"); err != nil {
		return err
	}

	counts := map[string]count{}
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		address := lines.Text()
		decision, err := client.Hit(ctx, pgclient.HitParams{
			Limit:   limitName,
			MaxHits: &j.Max,
			Per:     &j.Per,
			Subject: address,
			Tenant:  j.Tenant,
		})
		if err != nil {
			// Not tried again: whether it was counted is not known, and one count off is a failure.
			return fmt.Errorf("hit of %s: %w", address, err)
		}
		c := counts[address]
		if decision.Allowed {
			c.Allowed++
		} else {
			c.Refused++
		}
		counts[address] = c
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(counts)
}

// play starts the replicas, gives them the addresses in turn and adds up their counts.
func play(ctx context.Context, j job, replicas int, addresses []string) (map[string]count, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the others when one fails

	processes := make([]*process, replicas)
	for i := range processes {
		p, err := start(ctx, i+1, j)
		if err != nil {
			return nil, err
		}
		defer p.kill()
		processes[i] = p
	}
	// All of them together: the first must not be through before the last has connected.
	for _, p := range processes {
		if err := p.waitReady(); err != nil {
			return nil, err
		}
	}

	var wg sync.WaitGroup
	errs := make([]error, replicas)
	for i, p := range processes {
		wg.Go(func() {
			if errs[i] = p.play(addresses, i, replicas); errs[i] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	if err := firstCause(errs); err != nil {
		return nil, err
	}

	total := map[string]count{}
	for _, p := range processes {
		for address, c := range p.counts {
			sum := total[address]
			total[address] = count{sum.Allowed + c.Allowed, sum.Refused + c.Refused}
		}
	}
	return total, nil
}

// firstCause prefers an error of its own to that of a replica which was ended because of it.
func firstCause(errs []error) error {
	var killed error
	for _, err := range errs {
		if err != nil && !errors.Is(err, errKilled) {
			return err
		}
		killed = errors.Join(killed, err)
	}
	return killed
}

var errKilled = errors.New("ended by the others' failure")

// process is a replica as the parent sees it.
type process struct {
	cmd    *exec.Cmd
	counts map[string]count
	ctx    context.Context
	number int
	stderr bytes.Buffer
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// start runs this very program as a replica.
func start(ctx context.Context, number int, j job) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	value, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self), ctx: ctx, number: number}
	p.cmd.Env = append(os.Environ(), replicaEnv+"="+string(value))
	p.cmd.Stderr = &p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdout = bufio.NewReader(stdout)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) waitReady() error {
	if line, err := p.stdout.ReadString('\n'); err != nil || line != "ready\n" {
		return p.failed(err)
	}
	return nil
}

// play sends every replicas-th address, from the offset on, and waits for the counts.
func (p *process) play(addresses []string, offset, replicas int) error {
	w := bufio.NewWriter(p.stdin)
	var err error
	for i := offset; i < len(addresses) && err == nil; i += replicas {
		_, err = w.WriteString(addresses[i] + "\n")
	}
	// A failed write means that the replica has ended: its own message says why.
	if err := errors.Join(err, w.Flush(), p.stdin.Close()); err != nil {
		return p.failed(err)
	}
	if err := json.NewDecoder(p.stdout).Decode(&p.counts); err != nil {
		return p.failed(err)
	}
	if err := p.cmd.Wait(); err != nil {
		return p.failed(err)
	}
	return nil
}

// failed is the error of a replica that did not do its part.
func (p *process) failed(err error) error {
	waited := p.cmd.Wait()
	switch message := bytes.TrimSpace(p.stderr.Bytes()); {
	case p.ctx.Err() != nil:
		return fmt.Errorf("replica %d: %w", p.number, errKilled)
	case len(message) > 0:
		return fmt.Errorf("replica %d: %s", p.number, bytes.TrimPrefix(message, []byte("replay: ")))
	default:
		return fmt.Errorf("replica %d: %w", p.number, errors.Join(err, waited))
	}
}

// kill ends a replica that is still there.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}
