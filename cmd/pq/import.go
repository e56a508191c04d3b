package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/input"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// importWindow is for how long a repeated import finds what an earlier one has pushed.
const importWindow = 24 * time.Hour

// maxImportLine has room for an item of 9,000,000 bytes, each written as six.
const maxImportLine = 64 << 20

var errImportLine = fmt.Errorf("it has more than %d bytes, as no line of an export", maxImportLine)

func newImport(a *app) *cobra.Command {
	q := &queue{app: a}
	cmd := q.command(&cobra.Command{
		Use:   "import QUEUE",
		Short: "Add to a queue what pq export has printed",
		Long: `Read an export from standard input, push its items in their order, add its
schedules, and give the queue its settings. It prints a count and a digest,
which are those of the export. To repeat an import within a day adds nothing
twice: do that after one that failed.`,
		Example: "  pq import jobs < jobs.jsonl",
	}, func([]string) error { return q.importAll() })
	q.addJSON("print the counts and the digest as JSON")
	return cmd
}

// importAll reads an export and adds it to the queue.
func (q *queue) importAll() error {
	i := &importer{
		lines: input.NewLines(q.cmd.InOrStdin(), maxImportLine, errImportLine),
		line:  1,
		sum:   exportEnd{NotImported: map[string]int64{exportedExpired: 0}},
	}
	head, change, err := i.head(q)
	if err != nil {
		return exit.Error{Err: fmt.Errorf("line 1: %w", err)}
	}

	_, err = ask(q, "that may have been done",
		func(_ context.Context, s *session) (none struct{}, err error) {
			i.session = s
			return none, i.fill(head, change)
		})
	if err != nil {
		return fmt.Errorf("%w\npq: the import has not ended; repeat it once that is mended: "+
			"within a day, it adds nothing twice", err)
	}

	maps.Copy(i.sum.NotImported, i.end.NotImported)
	i.sum.Digest = hex.EncodeToString(i.digest.sum[:])
	if i.end.Digest != i.sum.Digest {
		err = fmt.Errorf("the export ends with digest %s: lines were changed, added or lost",
			i.end.Digest)
	}
	return cmp.Or(q.print(reply{
		fmt.Sprintf("imported %v\nthere before: %s\n", &i.sum, items(i.sum.Repeated, "")), &i.sum,
	}), err)
}

// importer reads one export.
type importer struct {
	*session
	lines   *input.Lines
	line    int               // number of the last that was read
	list    []client.PushItem // to be pushed
	numbers []int             // of their lines
	digest  exportDigest
	sum     exportEnd
	end     *exportEnd // the last line
}

// head reads the first line of an export, of a queue that is of the kind of q.
func (i *importer) head(q *queue) (head exportHead, change *subjects.Change, err error) {
	ctx, kind := q.cmd.Context(), q.kind().Short()
	text, _ := interrupt.Await(ctx, i.lines.Next)
	notJSON := json.Unmarshal(text, &head)
	change, err = subjects.ParseChange(head.Settings)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case head.Version == 0:
		err = errors.New("it is not the first line of pq export")
	case head.Version != exportVersion:
		err = fmt.Errorf("an export of version %d: this pq reads version %d", head.Version,
			exportVersion)
	case notJSON != nil:
		err = notJSON
	case head.Kind != kind:
		err = fmt.Errorf("an export of kind %s, and the queue is of kind %s: add or leave out "+
			"--fifo", strictjson.Quote(head.Kind), kind)
	case err == nil:
		head.Settings = subjects.EncodeSettings(&change.Settings)
		i.digest.add(head.carried())
	}
	return head, change, err
}

// fill adds the items and schedules. The queue has its settings from the beginning, except those
// that would refuse, remove or change items that come now: they are the last thing to be set.
func (i *importer) fill(head exportHead, change *subjects.Change) error {
	for row := range settings.All() {
		if row.Name != "source" {
			change.Reset = append(change.Reset, row.Name)
		}
	}

	first := *change
	first.Settings.DuplicateWindow, first.Settings.TTL = importWindow, 0
	first.Settings.MaxItems, first.Settings.Discard, first.Settings.MaxBytes =
		0, "", min(change.Settings.MaxBytes, 1)*settings.MaxTotalBytes // which is not set later
	if _, err := i.queue.ChangeSettings(i.finishing(), &first); err != nil {
		return err
	}
	if err := i.items(); err != nil {
		return err
	}

	for _, schedule := range head.Schedules {
		_, err := i.queue.SetSchedule(i.finishing(), schedule)
		switch {
		case err == nil:
			i.sum.Schedules++
		case schedule.Until.IsZero() || !errors.Is(err, client.ErrBadRequest): // or it is over
			return fmt.Errorf("schedule %s: %w", schedule.ID, err)
		}
	}

	_, err := i.queue.ChangeSettings(i.finishing(), change)
	return err
}

// items pushes the items. Lines that have arrived together share a batch.
func (i *importer) items() error {
	for {
		lines, err := interrupt.Await(i.of.cmd.Context(), i.lines.NextBatch)
		switch {
		case err == io.EOF && i.end != nil:
			return nil
		case err == io.EOF:
			err = fmt.Errorf("line %d is missing: the export is cut, or has not ended", i.line+1)
		}

		for n := 0; n < len(lines) && err == nil; n++ {
			err = i.add(lines[n])
		}
		if err = cmp.Or(i.push(), err); err != nil {
			return err
		}
	}
}

// add adds the item of a line to those that are to be pushed.
func (i *importer) add(text []byte) error {
	i.line++
	var line struct {
		exportedItem
		End *exportEnd `json:"end,omitzero"`
	}
	if err := strictjson.Unmarshal(text, &line); err != nil {
		return fmt.Errorf("line %d: %w", i.line, err)
	}
	if i.end = line.End; i.end != nil {
		return nil
	}

	it, left := line.push(), time.Until(line.Expires)
	i.digest.add(it)
	i.sum.Items++
	if !line.Expires.IsZero() {
		if left < settings.MinTTL {
			i.sum.NotImported[exportedExpired]++
			return nil
		}
		it.Message = it.With(client.TTL(left))
	}

	it.Message = it.With(client.MsgID(line.ID)) // which makes it happen once
	i.list, i.numbers = append(i.list, it), append(i.numbers, i.line)
	return nil
}

// push pushes the items that were added.
func (i *importer) push() error {
	results, _ := i.queue.PushMany(i.finishing(), i.list) // the results have the errors
	for n, r := range results {
		if r.Err != nil {
			return fmt.Errorf("line %d: %w", i.numbers[n], r.Err)
		}
		if r.Duplicate {
			i.sum.Repeated++
		}
	}
	i.list, i.numbers = nil, nil
	return nil
}
