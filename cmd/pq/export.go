package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// exportVersion is the version of the format that pq export writes and pq import reads: a line with
// an exportHead, one for each exportedItem, and one with an exportEnd.
const exportVersion = 1

// exportHead begins an export.
type exportHead struct {
	Version   int               `json:"pq_export"`
	Kind      string            `json:"kind"`
	Queue     string            `json:"queue"`
	At        time.Time         `json:"exported_at"`
	Settings  json.RawMessage   `json:"settings"` // without a source
	Schedules []client.Schedule `json:"schedules"`
}

// exportedItem is an item as pq get --json prints it, with the headers of a push among its headers.
type exportedItem struct {
	item
	Due     time.Time `json:"due,omitzero"` // of a delayed item
	Expires time.Time `json:"expires,omitzero"`
	// Block has the headers, as in a message of NATS, if they are not UTF-8.
	Block []byte `json:"headers_base64,omitempty"`
}

// exportEnd ends an export, and sums up an import.
type exportEnd struct {
	Items     int64  `json:"items"`
	Repeated  int64  `json:"repeated,omitzero"` // of an import: items that were there
	Schedules int    `json:"schedules"`
	Digest    string `json:"digest"`
	// NotImported counts what the new queue does not have.
	NotImported map[string]int64 `json:"not_imported"`
}

// What NotImported counts.
const (
	exportedIDs        = "ids"
	exportedTokens     = "tokens of leases"
	exportedDeliveries = "deliveries"
	exportedFinished   = "finished jobs"
	exportedCauses     = "causes of dead letters"
	exportedSources    = "sources"
	exportedExpired    = "items that have expired"
	exportedDamaged    = "items that cannot be read"
)

// String says it for people.
func (e *exportEnd) String() string {
	text := fmt.Sprintf("%s and %s, digest %s\nleft out by an import:", items(e.Items, ""),
		terminal.Plural(e.Schedules, "schedule"), e.Digest)
	for _, what := range slices.Sorted(maps.Keys(e.NotImported)) {
		text += fmt.Sprintf(" %s %s,", terminal.Grouped(e.NotImported[what]), what)
	}
	return strings.TrimSuffix(text, ",")
}

// exportDigest is over what an import carries over, and over the order of items that have the
// priority and the group in common. The turns of groups begin anew.
type exportDigest struct {
	sum      [sha256.Size]byte
	priority int64
	last     map[string][sha256.Size]byte // at the priority, by group
}

// add adds the head, as the value of an item, and then each item. When it expires is not among its
// headers: an import pushes what is left of its time, which then ends moments later.
func (d *exportDigest) add(it client.PushItem) {
	if d.last == nil || it.Priority != d.priority {
		d.priority, d.last = it.Priority, map[string][sha256.Size]byte{}
	}

	group := cmp.Or(it.Headers[subjects.HeaderGroup]...)
	one := sha256.Sum256(
		fmt.Appendf(nil, "%x %d %q %q", d.last[group], it.Priority, it.Headers, it.Value))
	d.last[group] = one
	subtle.XORBytes(d.sum[:], d.sum[:], one[:])
}

func newExport(a *app) *cobra.Command {
	q := &queue{app: a}
	return q.command(&cobra.Command{
		Use:   "export QUEUE",
		Short: "Print a whole queue, for pq import or other programs",
		Long: `Print a queue as lines of JSON, and leave it as it is: its settings and
schedules, each item with all it has, and at the end a count and a digest. It is
exact if the queue is paused and nobody pushes. Standard error counts what pq
import leaves out, such as ids and finished jobs.`,
		Example: `  pq export jobs > jobs.jsonl
  pq export jobs | pq import jobs --server nats://new.example.com:4222`,
	}, func([]string) error {
		_, err := ask(q, "", func(ctx context.Context, s *session) (none struct{}, err error) {
			return none, (&exporter{
				session: s, out: bufio.NewWriter(q.cmd.OutOrStdout()),
			}).export(ctx)
		})
		return err
	})
}

// exporter prints one queue. An error of out stays, so each page looks for one.
type exporter struct {
	*session
	out    *bufio.Writer
	digest exportDigest
	end    exportEnd
}

func (e *exporter) export(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return err
	}

	for page, err := range target.Pages(ctx, client.ItemsOptions{
		Limit: subjects.MaxItems, ValueBytes: subjects.MaxValueBytes,
	}, e.queue.Items) {
		for n := 0; n < len(page.Items) && err == nil; n++ {
			err = e.item(ctx, &page.Items[n])
		}
		if err = cmp.Or(context.Cause(ctx), err, e.out.Flush()); err != nil {
			return err // a signal says more than its request
		}
	}

	e.end.NotImported[exportedIDs], e.end.Digest = e.end.Items, hex.EncodeToString(e.digest.sum[:])
	err := cmp.Or(
		json.NewEncoder(e.out).Encode(map[string]*exportEnd{"end": &e.end}), e.out.Flush())
	if err == nil {
		e.of.say("exported %v", &e.end)
	}
	return err
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
		Version: exportVersion, Kind: e.of.kind().Short(), Queue: e.of.name, At: time.Now().UTC(),
		Settings: subjects.EncodeSettings(&settings), Schedules: []client.Schedule{},
	}
	for _, s := range has.schedules {
		head.Schedules = append(head.Schedules, s.Schedule)
	}

	e.digest.add(head.carried())
	return json.NewEncoder(e.out).Encode(&head)
}

// carried is what an import carries over of a head, as the value of an item.
func (h *exportHead) carried() client.PushItem {
	return client.PushItem{Message: client.Message{
		Value: fmt.Appendf(nil, "%s %+v", h.Settings, h.Schedules),
	}}
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
	case whole.Join != "" || whole.Joiner != "" || whole.Joined != nil:
		return fmt.Errorf("item %s belongs to a join, which an export cannot carry: wait until "+
			"the join is over and its jobs are done, or remove the item", from.ID)
	case whole.DeadLetter != nil:
		e.end.NotImported[exportedCauses]++
	}

	it := exportedItem{item: *whole, Due: timeOf(from.Due), Expires: timeOf(from.Expires)}
	if it.State != client.Delayed {
		it.State, it.Due = client.Ready, time.Time{}
	}
	for name, value := range map[string]string{
		subjects.HeaderGroup: it.Group, subjects.HeaderUnique: it.unique,
		subjects.HeaderKeep: cmp.Or(from.Headers[subjects.HeaderKeep]...),
	} {
		if value != "" {
			it.Headers[name] = []string{value}
		}
	}
	if block, _ := subjects.AppendHeaders(nil, it.Headers); !utf8.Valid(block) {
		it.Block, it.Headers = block, nil
	}

	err = json.NewEncoder(e.out).Encode(&it)
	e.digest.add(it.push())
	e.end.Items++
	e.end.NotImported[exportedDeliveries] += from.Deliveries
	return err
}

// push returns what to push for an item, without an end of its time. It changes the headers of it.
func (it *exportedItem) push() (m client.PushItem) {
	m.Priority, m.Headers = *cmp.Or(it.Priority, new(int64)), it.Headers
	m.Value = append(it.Base64, *cmp.Or(it.Value, new(string))...) // one of them is empty
	if it.Block != nil {
		m.Headers, _ = nats.DecodeHeadersMsg(it.Block) // the digest shows what was lost
	}

	maps.DeleteFunc(m.Headers, func(name string, values []string) bool {
		return subjects.IsReserved(name) && !slices.Contains(subjects.PushHeaders[:], name) ||
			strings.EqualFold(name, subjects.HeaderMsgID) ||
			strings.EqualFold(name, subjects.HeaderTTL) && !it.Expires.IsZero() ||
			subjects.HeaderFate(name, values) != subjects.Kept
	})
	if !it.Due.IsZero() {
		m.Message = m.With(client.At(it.Due))
	}
	return m
}
