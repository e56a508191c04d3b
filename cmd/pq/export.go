package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

func newExport(a *app) *cobra.Command {
	q := &queue{app: a}
	return q.command(&cobra.Command{
		Use:   "export QUEUE",
		Short: "Print a whole queue, for pq import or other programs",
		Long: `Print a queue as lines of JSON, and leave it as it is: its settings and
schedules, each item with all that was pushed, and at the end a count and a
digest. It is exact if the queue is paused and nobody pushes. Standard error
counts what pq import leaves out, such as ids and finished jobs.`,
		Example: `  pq export jobs > jobs.jsonl
  pq export jobs | pq import jobs --server nats://new.example.com:4222`,
	}, func([]string) error {
		_, err := ask(q, "", func(ctx context.Context, s *session) (none struct{}, err error) {
			return none, (&exporter{
				session: s, out: bufio.NewWriter(q.cmd.OutOrStdout()), digest: sha256.New(),
				waits: map[string]bool{},
			}).export(ctx)
		})
		return err
	})
}

// exporter prints one queue. An error of out stays, so each page looks for one.
type exporter struct {
	*session
	out    *bufio.Writer
	digest hash.Hash // of the lines so far
	end    exportEnd
	waits  map[string]bool // which joiners still wait, as far as members have named them
}

func (e *exporter) export(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return err
	}

	bar := terminal.NewProgress(e.of.cmd.ErrOrStderr())
	if terminal.Is(e.of.cmd.OutOrStdout()) { // where the lines themselves show it
		bar = nil
	}
	defer bar.Clear()

	for page, err := range target.Pages(ctx, client.ItemsOptions{
		Limit: subjects.MaxItems, ValueBytes: subjects.MaxValueBytes,
	}, e.queue.Items) {
		for n := 0; n < len(page.Items) && err == nil; n++ {
			err = e.item(ctx, &page.Items[n])
		}
		if err = cmp.Or(context.Cause(ctx), err, e.out.Flush()); err != nil {
			return err // a signal says more than its request
		}
		bar.Show("exported " + items(e.end.Items, ""))
	}

	e.end.NotImported[exportedIDs] = e.end.Items
	e.end.Digest = hex.EncodeToString(e.digest.Sum(nil))
	e.print(exportLast{End: &e.end})
	err := e.out.Flush()
	if bar.Clear(); err == nil {
		e.of.say("exported %v", &e.end)
	}
	return err
}

// print prints a line, and adds it to the digest.
func (e *exporter) print(line any) {
	text := append(strictjson.Marshal(line), '\n')
	_, _ = e.digest.Write(text)
	_, _ = e.out.Write(text)
}

// begin prints the head.
func (e *exporter) begin(ctx context.Context) error {
	has, err := e.belongings(ctx)
	if err != nil {
		return err
	}

	settings := has.info.Settings
	if !e.noteUnused(ctx) && !settings.PauseUntil.After(time.Now()) {
		e.of.say("%s is not paused: the export may miss what moves or comes meanwhile; pause it, "+
			"and keep pushers away, to have it exact", e.of.name)
	}

	e.end = exportEnd{Schedules: len(has.schedules), NotImported: map[string]int64{
		exportedFinished: has.info.Finished, exportedTokens: has.info.Leased,
		exportedDeliveries: 0, exportedCauses: 0,
		exportedSources: int64(min(len(settings.Source), 1)),
	}}
	settings.Source = "" // the new queue would draw the whole stream again
	head := exportHead{
		Version: exportVersion, Kind: e.of.kind().Short(), Queue: e.of.name, At: time.Now(),
		Settings: subjects.EncodeSettings(&settings), Schedules: []client.Schedule{},
	}
	for _, s := range has.schedules {
		head.Schedules = append(head.Schedules, s.Schedule)
	}
	e.print(&head)
	return nil
}

// item prints an item, unless it has left the queue meanwhile.
func (e *exporter) item(ctx context.Context, from *client.StoredItem) error {
	if from.HeadersCut { // then a get may leave some out as well
		list, err := e.queue.GetItems(ctx, []string{from.ID}, client.NoValues)
		if err != nil || len(list) != 1 || list[0].HeadersCut {
			return fmt.Errorf("item %s: no reply has room for its headers (%v)", from.ID, err)
		}
		from.Headers = list[0].Headers
	}
	// A page has these runes in place of bytes that are not UTF-8.
	from.ValueCut = from.ValueCut ||
		strings.ContainsRune(fmt.Sprint(from.Headers), utf8.RuneError)

	whole, err := e.whole(ctx, from, false)
	switch {
	case from.Code != 0:
		e.end.NotImported[exportedDamaged]++
		return nil
	case errors.Is(err, client.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	if err := e.checkJoin(ctx, whole); err != nil {
		return err
	}

	it := exportedItem{
		ID: whole.ID, State: client.Ready, Expires: timeOf(from.Expires), Priority: whole.Priority,
		Headers: whole.Headers, Value: whole.Value, Base64: whole.Base64,
		PushedAt: whole.PushedAt, Deliveries: from.Deliveries, Reason: whole.Reason,
	}
	if whole.State == client.Delayed {
		it.State, it.Due = client.Delayed, timeOf(from.Due)
	}
	for name, value := range map[string]string{
		subjects.HeaderGroup: whole.Group, subjects.HeaderUnique: whole.unique,
		subjects.HeaderKeep: cmp.Or(from.Headers[subjects.HeaderKeep]...),
	} {
		if value != "" {
			it.Headers[name] = []string{value}
		}
	}
	if block, _ := subjects.AppendHeaders(nil, it.Headers); !utf8.Valid(block) {
		it.Block, it.Headers = block, nil
	}
	if whole.DeadLetter != nil {
		it.DeadLetter = strictjson.Marshal(whole.DeadLetter)
		e.end.NotImported[exportedCauses]++
	}

	e.print(&it)
	e.end.Items++
	e.end.NotImported[exportedDeliveries] += from.Deliveries
	return nil
}

// checkJoin returns an error for an item of a join that goes on: without the others, a joiner would
// wait for nothing, or not at all.
func (e *exporter) checkJoin(ctx context.Context, it *item) error {
	if it.Joined != nil {
		e.end.NotImported[exportedJoins]++
	}
	goesOn, known := e.waits[it.Joiner]
	if it.Joiner != "" && !known {
		of, _ := trail.ParseJob(it.Joiner)
		joiner, err := e.job(ctx, of)
		if err != nil && !errors.Is(err, client.ErrNotFound) {
			return fmt.Errorf("item %s: its joiner %s: %w", it.ID, it.Joiner, err)
		}
		goesOn = joiner.Headers[subjects.HeaderJoin] != nil
		e.waits[it.Joiner] = goesOn
	}

	if it.Join != "" || goesOn {
		return fmt.Errorf("item %s belongs to a join that goes on, which an export cannot carry: "+
			"wait until the join is over, or remove the item", it.ID)
	}
	return nil
}
