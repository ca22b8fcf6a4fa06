// Package lostreply tests the client across a real proxy that loses replies. It is a module of its own, so that those
// who use the client do not depend on the proxy.
package lostreply

import (
	"bytes"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// Cut is what a proxy does with a reply that tells of a commit.
type Cut int

const (
	Pass     Cut = iota // deliver it
	Withhold            // deliver none of it, and end the connection
	Truncate            // deliver the half of it before the news, and end the connection
)

// Proxy is a toxiproxy before a server. The replies that tell of a commit are treated in turn as its plan says, which
// begins again at its end; whatever else is said passes.
type Proxy struct {
	Plan []Cut

	mu    sync.Mutex
	next  int
	cuts  int
	proxy *toxiproxy.Proxy
}

// Start begins to serve, before the server that dsn names, and returns the connection string that goes through it.
func (p *Proxy) Start(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", err
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	name := fmt.Sprintf("%p", p)
	p.proxy = toxiproxy.NewProxy(server, name, "127.0.0.1:0", u.Host)
	if err := p.proxy.Start(); err != nil {
		return "", err
	}
	proxies.Store(name, p)
	_, err = p.proxy.Toxics.AddToxicJson(strings.NewReader(
		fmt.Sprintf(`{"type": "cut_after_commit", "stream": "downstream", "attributes": {"proxy": %q}}`, name)))
	if err != nil {
		p.Stop()
		return "", err
	}
	u.Host = p.proxy.Listen
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return "", err
	}
	return u.String(), nil
}

// Stop ends the proxy and all its connections.
func (p *Proxy) Stop() {
	p.proxy.Stop()
	proxies.Delete(p.proxy.Name)
}

// Cuts returns how many replies were lost so far.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// turn returns what becomes of the next reply that tells of a commit.
func (p *Proxy) turn() Cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := p.Plan[p.next%len(p.Plan)]
	p.next++
	if cut != Pass {
		p.cuts++
	}
	return cut
}

// proxies are those that run, by name: toxiproxy makes its toxics itself, from JSON.
var proxies sync.Map

func init() { toxics.Register("cut_after_commit", new(cutAfterCommit)) }

// cutAfterCommit is a toxic that ends a connection when the server says that it has committed.
type cutAfterCommit struct {
	Proxy string `json:"proxy"`
}

// committed is the tag of the message by which PostgreSQL tells of a commit. The server sends what it has to say on one
// batch in one write, so a chunk holds all of it.
var committed = []byte("COMMIT\x00")

func (c *cutAfterCommit) Pipe(stub *toxics.ToxicStub) {
	found, _ := proxies.Load(c.Proxy)
	p, _ := found.(*Proxy)
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			at := bytes.Index(chunk.Data, committed)
			if at < 0 || p == nil {
				stub.Output <- chunk
				continue
			}
			cut := p.turn()
			if cut == Pass {
				stub.Output <- chunk
				continue
			}
			if cut == Truncate {
				stub.Output <- &stream.StreamChunk{Data: chunk.Data[:at/2], Timestamp: chunk.Timestamp}
			}
			stub.Close()
			drain(stub)
			return
		}
	}
}

// drain takes what still comes, so that whoever sends it is not held.
func drain(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				return
			}
		}
	}
}
