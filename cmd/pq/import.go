package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/input"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/interrupt"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// importWindow is for how long a repeated import finds what an earlier one has pushed.
const importWindow = 24 * time.Hour

// maxImportLine has room for an item of 9,000,000 bytes, each written as six.
const maxImportLine = 64 << 20

var errImportLine = fmt.Errorf("it has more than %d bytes, as no line of an export", maxImportLine)

var errChanged = errors.New("lines were changed, added or lost")

func newImport(a *app) *cobra.Command {
	q, i := &queue{app: a}, &importer{line: 1, digest: sha256.New()}
	cmd := q.command(&cobra.Command{
		Use:   "import QUEUE",
		Short: "Add to a queue what pq export has printed",
		Long: `Read an export from standard input, push its items in their order, add its
schedules, and give the queue its settings. It prints a count and a digest,
which are those of the export. A queue that is in use needs --yes. To repeat an
import within a day adds nothing twice: do that after one that failed.`,
		Example: `  pq import jobs < jobs.jsonl
  pq import jobs --yes < jobs.jsonl`,
	}, func([]string) error { return i.importAll(q) })
	cmd.Flags().BoolVar(&i.yes, "yes", false, "import into a queue that is in use")
	q.addJSON("print the counts and the digest as JSON")
	return cmd
}

// importer reads one export.
type importer struct {
	*session
	yes    bool // import into a queue in use
	begun  bool // something may have changed
	lines  *input.Lines
	line   int       // number of the last that was read
	digest hash.Hash // of the lines so far
	head   exportHead
	change *subjects.Change  // what the head says of settings
	never  bool              // items expire unless they say that they never do
	list   []client.PushItem // to be pushed
	at     []int             // numbers of their lines
	sum    importSum
	end    *exportEnd // the last line
}

// importSum sums up an import.
type importSum struct {
	exportEnd
	Repeated int64 `json:"repeated,omitzero"` // items that were there
}

// importAll reads an export and adds it to a queue.
func (i *importer) importAll(q *queue) error {
	i.lines = input.NewLines(q.cmd.InOrStdin(), maxImportLine, errImportLine)
	i.sum.NotImported = map[string]int64{exportedExpired: 0}
	if err := i.readHead(q); err != nil {
		return exit.Error{Err: fmt.Errorf("line 1: %w", err)}
	}

	_, err := ask(q, "that may have been done",
		func(ctx context.Context, s *session) (none struct{}, err error) {
			i.session = s
			return none, i.fill(ctx)
		})
	switch {
	case errors.Is(err, errChanged): // the ids of such items are known, so a repeat mends nothing
		return fmt.Errorf("%w\npq: what was imported may be wrong; import a sound export into "+
			"another queue", err)
	case err != nil && i.begun:
		return fmt.Errorf("%w\npq: the import has not ended; repeat it with --yes once that is "+
			"mended: within a day, it adds nothing twice", err)
	case err != nil:
		return err
	}

	maps.Copy(i.sum.NotImported, i.end.NotImported)
	i.sum.Digest = i.end.Digest
	return q.print(reply{
		fmt.Sprintf("imported %v\nthere before: %s\n", &i.sum, items(i.sum.Repeated, "")), &i.sum,
	})
}

// readHead reads the first line of an export of a queue that is of the kind of q.
func (i *importer) readHead(q *queue) error {
	ctx, kind := q.cmd.Context(), q.kind().Short()
	text, err := interrupt.Await(ctx, i.lines.Next)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	} else if err != nil && err != io.EOF {
		return errors.Unwrap(err) // without the number of the line
	}

	_ = json.Unmarshal(text, &i.head) // which may be of another version
	switch i.head.Version {
	case exportVersion:
	case 0:
		return errors.New("it is not the first line of pq export")
	default:
		return fmt.Errorf("an export of version %d: this pq reads version %d", i.head.Version,
			exportVersion)
	}

	i.head = exportHead{}
	if err = strictjson.Unmarshal(text, &i.head); err == nil {
		i.change, err = subjects.ParseChange(i.head.Settings)
	}
	for n := 0; n < len(i.head.Schedules) && err == nil; n++ {
		err = i.head.Schedules[n].Check()
	}
	switch {
	case err != nil:
		return err
	case i.head.Kind != kind:
		return fmt.Errorf("an export of kind %s, and the queue is of kind %s: add or leave out "+
			"--fifo", strictjson.Quote(i.head.Kind), kind)
	case i.change.Settings.DeadLetter == q.name:
		return fmt.Errorf("its dead_letter is %s, which cannot be its own dead-letter queue: "+
			"import it into another queue", q.name)
	}
	i.addToDigest(text)
	return nil
}

// addToDigest adds a line.
func (i *importer) addToDigest(text []byte) { _, _ = i.digest.Write(append(text, '\n')) }

// fill adds the items and schedules. A queue in use keeps its settings until all the rest is done,
// so that it has its limits even if pq is killed. Another queue has the new settings from the
// beginning, except those that would refuse, remove or change items that come now.
func (i *importer) fill(ctx context.Context) (err error) {
	has, err := i.belongings(ctx)
	if err != nil {
		return err
	}
	now, inUse := has.info.Settings, !isUnused(has.info) || len(has.schedules) > 0
	if inUse && !i.yes {
		return exit.Usagef("%s is in use, with %s: an import adds to them, and replaces settings "+
			"and schedules: add --yes if that is meant", i.of.name, has)
	}

	for row := range settings.All() {
		if row.Name != "source" {
			i.change.Reset = append(i.change.Reset, row.Name)
		}
	}
	first := *i.change
	if inUse {
		first = subjects.Change{}
	}
	s := &first.Settings
	s.TTL, s.MaxItems, s.MaxBytes, s.Discard, i.never = 0, 0, 0, "", now.TTL > 0
	s.DuplicateWindow = max(importWindow, now.DuplicateWindow)
	if now.Discard == settings.DiscardOld {
		s.Discard = settings.DiscardNew // an import that has no room fails
	}
	if now.MaxBytes == 0 && i.change.Settings.MaxBytes > 0 { // which is not set later
		s.MaxBytes = settings.MaxTotalBytes
	}
	i.begun = true
	if _, err := i.queue.ChangeSettings(i.finishing(), &first); err != nil {
		return err
	}

	if err = i.items(); err == nil {
		err = i.schedules()
	}
	if err == nil {
		_, err = i.queue.ChangeSettings(i.finishing(), i.change)
	}
	if err != nil && inUse {
		back := &subjects.Change{Reset: []string{"duplicate_window", "discard"}}
		back.Settings.DuplicateWindow, back.Settings.Discard = now.DuplicateWindow, now.Discard
		if _, failed := i.queue.ChangeSettings(i.finishing(), back); failed != nil {
			err = fmt.Errorf("%w\npq: %s did not get its duplicate_window and discard back: %v",
				err, i.of.name, failed)
		}
	}
	return err
}

// schedules adds the schedules.
func (i *importer) schedules() error {
	for _, schedule := range i.head.Schedules {
		_, err := i.queue.SetSchedule(i.finishing(), schedule)
		switch {
		case err == nil:
			i.sum.Schedules++
		case schedule.Until.IsZero() || !errors.Is(err, client.ErrBadRequest): // or it is over
			return fmt.Errorf("schedule %s: %w", schedule.ID, err)
		}
	}
	return nil
}

// items pushes the items. Lines that have arrived together share a batch.
func (i *importer) items() error {
	bar := terminal.NewProgress(i.of.cmd.ErrOrStderr())
	defer bar.Clear()

	for {
		lines, err := interrupt.Await(i.of.cmd.Context(), i.lines.NextBatch)
		switch {
		case err == io.EOF && i.end != nil:
			return nil
		case err == io.EOF:
			err = fmt.Errorf("line %d is missing: the export is cut, or has not ended", i.line+1)
		}

		for n := 0; n < len(lines) && err == nil; n++ {
			i.line++
			if err = i.add(lines[n]); err != nil {
				err = fmt.Errorf("line %d: %w", i.line, err)
			}
		}
		if err = cmp.Or(i.push(), err); err != nil {
			return err
		}
		bar.Show("imported " + items(i.sum.Items, ""))
	}
}

// add adds the item of a line to those that are to be pushed.
func (i *importer) add(text []byte) error {
	var line struct {
		exportedItem
		exportLast
	}
	if i.end != nil {
		return errors.New("something comes after the last line of the export")
	}
	if err := strictjson.Unmarshal(text, &line); err != nil {
		return err
	}
	if i.end = line.End; i.end != nil {
		return i.checkEnd()
	}
	if line.ID == "" {
		return errors.New("id is missing: want the id that the item had")
	}

	it, err := line.push()
	if err != nil {
		return err
	}
	i.addToDigest(text)
	i.sum.Items++
	switch left := time.Until(line.Expires); {
	case line.Expires.IsZero() && i.never:
		it.Message = it.With(client.TTL(0))
	case line.Expires.IsZero():
	case left < settings.MinTTL:
		i.sum.NotImported[exportedExpired]++
		return nil
	default:
		it.Message = it.With(client.TTL(left))
	}

	it.Message = it.With(client.MsgID(line.ID)) // which makes it happen once
	i.list, i.at = append(i.list, it), append(i.at, i.line)
	return nil
}

// checkEnd compares what the last line says with the lines before it.
func (i *importer) checkEnd() error {
	switch digest := hex.EncodeToString(i.digest.Sum(nil)); {
	case i.end.Digest != digest:
		return fmt.Errorf("%w: the digest is %s, and here it is %s", errChanged,
			strictjson.Quote(i.end.Digest), digest)
	case i.end.Items != i.sum.Items || i.end.Schedules != len(i.head.Schedules):
		return fmt.Errorf("it counts %s and %s, and there are %s and %s", items(i.end.Items, ""),
			terminal.Plural(i.end.Schedules, "schedule"), items(i.sum.Items, ""),
			terminal.Plural(len(i.head.Schedules), "schedule"))
	}
	return nil
}

// push pushes the items that were added.
func (i *importer) push() error {
	results, _ := i.queue.PushMany(i.finishing(), i.list) // the results have the errors
	for n, r := range results {
		if r.Err != nil {
			return fmt.Errorf("line %d: %w", i.at[n], r.Err)
		}
		if r.Duplicate {
			i.sum.Repeated++
		}
	}
	i.list, i.at = nil, nil
	return nil
}
