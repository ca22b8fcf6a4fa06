package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pglimit/pglimit/pgclient"
)

// demoShow counts what the replicas tell, watches who holds permits, and shows both.
type demoShow struct {
	io    *IOStreams
	live  bool // redraw, rather than add lines
	drawn int  // lines of the last drawing
	start time.Time

	mu        sync.Mutex // guards what replicas tell
	allowed   int
	granted   int
	lastError string
	noAnswer  int
	refused   map[pgclient.Reason]int
	hitsOver  int

	// What the viewer saw.
	highest       int
	highestHolder map[string]int
	lanes         [demoInstallationCap]*pgclient.PermitRow
	looks         int
	status        time.Duration // when the last plain line of counts was shown

	// The killed replica.
	killedAt time.Duration
	left     []*demoLeft
}

// demoLeft is a permit that the killed replica held.
type demoLeft struct {
	row     pgclient.PermitRow
	lapsed  time.Duration // when the viewer first saw it gone; 0: not yet
	nextRow *pgclient.PermitRow
}

func newDemoShow(streams *IOStreams, live bool) *demoShow {
	return &demoShow{io: streams, live: live, highestHolder: map[string]int{}, refused: map[pgclient.Reason]int{}}
}

func (d *demoShow) hear(e demoEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case e.Answer == demoNoAnswer:
		d.noAnswer++
		d.lastError = e.Message
	case e.Answer == demoAnswerClaim && e.OK:
		d.granted++
	case e.Answer == demoAnswerClaim:
		d.refused[e.Reason]++
	case e.Answer == demoAnswerHit && e.OK:
		d.allowed++
	case e.Answer == demoAnswerHit:
		d.hitsOver++
	}
}

func (d *demoShow) quotaUsed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.allowed >= demoQuota
}

// play runs the replicas from their start to their end.
func (d *demoShow) play(ctx context.Context, viewer *pgclient.Client, dsn string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.start = time.Now()
	var processes []*demoProcess
	defer func() {
		for _, p := range processes {
			if p.cmd.ProcessState == nil {
				p.kill()
			}
		}
	}()
	for number := 1; number <= demoReplicas; number++ {
		p, err := startDemoReplica(ctx, number, dsn, d.hear)
		if err != nil {
			return err
		}
		processes = append(processes, p)
	}
	d.say(fmt.Sprintf("%d replicas want permits of %s; each of %s may have %d, all together %d.", demoReplicas, demoEndpoint,
		strings.Join(demoHolders, ", "), demoHolderCap, demoInstallationCap))

	if err := d.watch(ctx, viewer, processes[demoVictim-1]); err != nil {
		return err
	}
	for i, p := range processes {
		if p.killed {
			continue
		}
		if err := p.end(); err != nil {
			return fmt.Errorf("replica %d: %w", i+1, err)
		}
	}
	d.draw()
	return nil
}

// watch looks until the end, and kills the victim on the way, once it holds permits.
func (d *demoShow) watch(ctx context.Context, viewer *pgclient.Client, victim *demoProcess) error {
	ticker := time.NewTicker(demoPoll)
	defer ticker.Stop()
	var warned time.Duration // when the victim's work became long
	for {
		rows, err := viewer.ListPermits(ctx, pgclient.ListPermitsParams{Endpoint: demoEndpoint})
		if err != nil {
			return err
		}
		elapsed := time.Since(d.start)
		d.look(rows, elapsed)

		switch {
		case victim.killed && len(d.left) > 0 && d.takenAgain() && elapsed > demoEnd, elapsed > demoLast:
			return nil
		case warned == 0 && elapsed > demoKillAt && d.quotaUsed():
			warned = elapsed
			// Long work: between the look that finds permits and the kill none is released.
			if _, err := fmt.Fprintln(victim.stdin, "long"); err != nil {
				return fmt.Errorf("replica %d has ended: %w", demoVictim, err)
			}
		case warned > 0 && !victim.killed && d.heldByVictim(rows, elapsed-warned):
			victim.kill()
			if err := d.bury(ctx, viewer); err != nil {
				return err
			}
		}
		d.draw()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// heldByVictim tells whether the victim holds enough to be killed: two permits, or one after a while.
// In its first second of long work some of it may still be short.
func (d *demoShow) heldByVictim(rows []pgclient.PermitRow, long time.Duration) bool {
	held := 0
	for _, r := range rows {
		if replicaOf(r) == demoVictim {
			held++
		}
	}
	return long > time.Second && (held >= 2 || held == 1 && long > 4*time.Second)
}

// bury notes what the victim held when it was dead.
func (d *demoShow) bury(ctx context.Context, viewer *pgclient.Client) error {
	demoPause(ctx, demoPoll/2) // a call that it had sent may still be under way
	rows, err := viewer.ListPermits(ctx, pgclient.ListPermitsParams{Endpoint: demoEndpoint})
	if err != nil {
		return err
	}
	d.killedAt = time.Since(d.start)
	var held []string
	for _, r := range rows {
		if replicaOf(r) == demoVictim {
			d.left = append(d.left, &demoLeft{row: r})
			held = append(held, fmt.Sprintf("%d (%s)", r.ID, r.Holder))
		}
	}
	d.say(fmt.Sprintf("Replica %d killed with SIGKILL while it held: %s. Nobody releases them.", demoVictim, strings.Join(held, ", ")))
	return nil
}

// look takes in one list of permits.
func (d *demoShow) look(rows []pgclient.PermitRow, elapsed time.Duration) {
	d.looks++
	// All rows were there at once when the last of them was claimed, but for those that had lapsed by
	// then: the list decides what is live a moment before it reads.
	var last time.Time
	for _, r := range rows {
		if r.ClaimedAt.After(last) {
			last = r.ClaimedAt
		}
	}
	all := 0
	holders := map[string]int{}
	for _, r := range rows {
		if r.ExpiresAt.After(last) {
			all++
			holders[r.Holder]++
		}
	}
	d.highest = max(d.highest, all)
	for holder, n := range holders {
		d.highestHolder[holder] = max(d.highestHolder[holder], n)
	}
	d.follow(rows, elapsed)
	d.place(rows)
}

// follow looks for the end of what the killed replica held, and for who came after. A place is one of
// the installation's: whichever claims come first after the lapse take them.
func (d *demoShow) follow(rows []pgclient.PermitRow, elapsed time.Duration) {
	taken := map[int64]bool{}
	for _, l := range d.left {
		if l.nextRow != nil {
			taken[l.nextRow.ID] = true
		}
	}
	for _, l := range d.left {
		if l.lapsed == 0 && !slices.ContainsFunc(rows, func(r pgclient.PermitRow) bool { return r.ID == l.row.ID }) {
			l.lapsed = elapsed
			d.say(fmt.Sprintf("Permit %d of the killed replica has lapsed.", l.row.ID))
		}
		if l.lapsed == 0 || l.nextRow != nil {
			continue
		}
		for _, r := range rows {
			if !taken[r.ID] && !r.ClaimedAt.Before(l.row.ExpiresAt) {
				l.nextRow = &r
				taken[r.ID] = true
				d.say(fmt.Sprintf("Its place is taken again: permit %d, %s on replica %d.", r.ID, r.Holder, replicaOf(r)))
				break
			}
		}
	}
}

func (d *demoShow) takenAgain() bool {
	return !slices.ContainsFunc(d.left, func(l *demoLeft) bool { return l.nextRow == nil })
}

// place keeps each permit in the lane where it was first drawn.
func (d *demoShow) place(rows []pgclient.PermitRow) {
	for i, lane := range d.lanes {
		if lane != nil && !slices.ContainsFunc(rows, func(r pgclient.PermitRow) bool { return r.ID == lane.ID }) {
			d.lanes[i] = nil
		}
	}
	for _, r := range rows {
		if slices.ContainsFunc(d.lanes[:], func(lane *pgclient.PermitRow) bool { return lane != nil && lane.ID == r.ID }) {
			continue
		}
		if i := slices.Index(d.lanes[:], nil); i >= 0 {
			d.lanes[i] = &r
		}
	}
}

func replicaOf(r pgclient.PermitRow) int {
	var note demoNote
	_ = json.Unmarshal(r.Note, &note) // all permits here have one
	return note.Replica
}

// say adds a line that stays.
func (d *demoShow) say(text string) {
	d.erase()
	fmt.Fprintf(d.io.Out, "%5.1f s  %s\n", time.Since(d.start).Seconds(), text)
}

func (d *demoShow) erase() {
	if d.drawn > 0 {
		fmt.Fprintf(d.io.Out, "\x1b[%dA\x1b[J", d.drawn)
		d.drawn = 0
	}
}

// draw shows the lanes on a terminal, and elsewhere the counts every other second.
func (d *demoShow) draw() {
	elapsed := time.Since(d.start)
	d.mu.Lock()
	counts := fmt.Sprintf("permits: %d granted, %d refused; attempts: %d allowed, %d refused", d.granted, d.refusals(), d.allowed, d.hitsOver)
	d.mu.Unlock()
	if !d.live {
		if elapsed-d.status >= 2*time.Second {
			d.status = elapsed
			d.say(counts)
		}
		return
	}
	d.erase()
	lines := []string{""}
	for i, r := range d.lanes {
		text := fmt.Sprintf("  place %d  %s", i+1, strings.Repeat("·", 12))
		if r != nil {
			owner, color := fmt.Sprintf("replica %d", replicaOf(*r)), green
			if d.killedAt > 0 && replicaOf(*r) == demoVictim {
				owner, color = owner+", killed", red
			}
			text = fmt.Sprintf("  place %d  %s  %-6s %s, permit %d", i+1, d.io.paint(color, strings.Repeat("█", 12)), r.Holder, owner, r.ID)
		}
		lines = append(lines, text)
	}
	width, _ := d.io.size()
	if counts = fmt.Sprintf("  %.1f s  %s", elapsed.Seconds(), counts); len(counts) >= width {
		counts = counts[:max(width-1, 0)] // a line that wraps would not be erased
	}
	lines = append(lines, counts)
	fmt.Fprintln(d.io.Out, strings.Join(lines, "\n"))
	d.drawn = len(lines)
}

// refusals is the sum over all reasons. The caller holds the lock.
func (d *demoShow) refusals() (n int) {
	for _, k := range d.refused {
		n += k
	}
	return n
}

// summary says what was counted, and returns what should not have been.
func (d *demoShow) summary() (failures []string) {
	d.erase()
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.io.Out
	holders := slices.Sorted(maps.Keys(d.highestHolder))
	var each []string
	for _, h := range holders {
		each = append(each, fmt.Sprintf("%s %d", h, d.highestHolder[h]))
		if n := d.highestHolder[h]; n > demoHolderCap {
			failures = append(failures, fmt.Sprintf("%s had %d permits at once, the cap is %d", h, n, demoHolderCap))
		}
	}
	if d.highest > demoInstallationCap {
		failures = append(failures, fmt.Sprintf("%d permits were live at once, the cap is %d", d.highest, demoInstallationCap))
	}
	capsKept := len(failures) == 0
	if d.allowed != demoQuota {
		failures = append(failures, fmt.Sprintf("%d attempts were allowed, the quota is %d", d.allowed, demoQuota))
	}
	if len(d.left) == 0 || !d.takenAgain() {
		failures = append(failures, "the permits of the killed replica were not seen to lapse and be taken again")
	}

	fmt.Fprintf(w, "\nSummary\n")
	fmt.Fprintf(w, "  permits granted     %d\n", d.granted)
	fmt.Fprintf(w, "  permits refused     %d: by holder cap %d, endpoint cap %d (none is set), installation cap %d\n", d.refusals(),
		d.refused[pgclient.ReasonHolder], d.refused[pgclient.ReasonEndpoint], d.refused[pgclient.ReasonInstallation])
	fmt.Fprintf(w, "  most live at once   %d of %d in all; of %d a holder: %s (%d looks)\n", d.highest, demoInstallationCap, demoHolderCap,
		strings.Join(each, ", "), d.looks)
	fmt.Fprintf(w, "  attempts            %d allowed of a quota of %d a minute, %d refused\n", d.allowed, demoQuota, d.hitsOver)
	for _, l := range d.left {
		fate := "not seen to lapse"
		if l.lapsed > 0 {
			fate = fmt.Sprintf("lapsed %.1f s after the kill", (l.lapsed - d.killedAt).Seconds())
		}
		if l.nextRow != nil {
			fate += fmt.Sprintf(", place taken again by permit %d %d ms after its lease ended", l.nextRow.ID,
				l.nextRow.ClaimedAt.Sub(l.row.ExpiresAt).Milliseconds())
		}
		fmt.Fprintf(w, "  killed replica %d    permit %d: %s\n", demoVictim, l.row.ID, fate)
	}
	if d.noAnswer > 0 {
		fmt.Fprintf(w, "  calls that failed   %d, the last: %s\n", d.noAnswer, escapeInvisible(redact(d.lastError)))
	}
	if capsKept {
		fmt.Fprintln(w, d.io.paint(green, "Caps kept: at no look were more permits live than a cap allows."))
	} else {
		fmt.Fprintln(w, d.io.paint(red, "A cap was exceeded."))
	}
	return failures
}
