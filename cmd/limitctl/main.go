// Command limitctl inspects and operates pglimit, the rate limiter and permit leaser inside PostgreSQL.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pglimit/pglimit/cmd/limitctl/internal/cli"
)

func main() {
	// A reader that has seen enough makes a write fail, so that connections are closed properly; left
	// alone, the signal would end the process in the middle of them.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Main(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
