package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglimit/pglimit/pgclient"
)

// completionBudget is how long a shell waits for us: who presses TAB should not notice a database
// that is away.
const completionBudget = 400 * time.Millisecond

// candidates lists what could stand for an argument; a tab separates it from its description.
type candidates func(context.Context, Client) ([]string, error)

func limitNames(ctx context.Context, client Client) ([]string, error) {
	rows, err := client.ListLimits(ctx, pgclient.ListLimitsParams{MaxRows: pageSize})
	names := make([]string, 0, len(rows))
	for _, r := range rows {
		names = append(names, fmt.Sprintf("%s\t%d per %s", r.Limit, r.MaxHits, formatWindow(r.Per, r.Algorithm)))
	}
	return names, err
}

func endpointNames(ctx context.Context, client Client) ([]string, error) {
	rows, err := client.ListEndpoints(ctx, pgclient.ListEndpointsParams{MaxRows: pageSize})
	names := make([]string, 0, len(rows))
	for _, r := range rows {
		names = append(names, r.Endpoint)
	}
	return names, err
}

func permitIDs(ctx context.Context, client Client) ([]string, error) {
	rows, err := client.ListPermits(ctx, pgclient.ListPermitsParams{MaxRows: pageSize})
	names := make([]string, 0, len(rows))
	for _, r := range rows {
		names = append(names, fmt.Sprintf("%s\t%s, held by %s", strconv.FormatInt(r.ID, 10), printable(r.Endpoint), printable(r.Holder)))
	}
	return names, err
}

// complete asks the database, within the budget and without a word about what goes wrong.
func complete(ctx context.Context, f *Factory, find candidates, toComplete string) ([]string, cobra.ShellCompDirective) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionBudget)
	defer cancel()
	found := make(chan []string, 1)
	go func() { found <- ask(ctx, f, find) }() // the calls of a client do not end with their context
	select {
	case names := <-found:
		var matching []string
		for _, name := range names {
			if strings.HasPrefix(name, toComplete) {
				matching = append(matching, name)
			}
		}
		slices.Sort(matching)
		return slices.Compact(matching), cobra.ShellCompDirectiveNoFileComp
	case <-ctx.Done():
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

func ask(ctx context.Context, f *Factory, find candidates) []string {
	client, err := f.Client(ctx)
	if err != nil {
		return nil
	}
	defer client.Close()
	names, err := find(ctx, client)
	if err != nil {
		return nil
	}
	return names
}

// completeArgs completes the first n arguments, all of them for -1.
func completeArgs(f *Factory, n int, find candidates) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd.Context(), f, find, toComplete)
	}
}

func completeFlag(cmd *cobra.Command, name string, f *Factory, find candidates) {
	// Fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(name, completeArgs(f, -1, find))
}
