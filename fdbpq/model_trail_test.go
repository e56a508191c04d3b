package fdbpq_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// modelTrail is the attempts of an item in its present life, and when its lease began.
type modelTrail struct {
	attempts []trail.Attempt // by number
	since    time.Time       // zero if that is not known
}

// attempt is how the lease of an item ends, or has ended.
func (i *modelItem) attempt(how trail.End, at time.Time, reason string) trail.Attempt {
	return trail.Attempt{
		Number: i.deliveries, From: i.since, To: at.UTC(), How: how, Reason: trail.Clean(reason),
	}
}

// without returns the attempts of an item, one of a number excepted.
func (i *modelItem) without(number int64) []trail.Attempt {
	return slices.DeleteFunc(slices.Clone(i.attempts),
		func(a trail.Attempt) bool { return a.Number == number })
}

// forgive removes the attempt of a lease that has run out, if it does not count after all.
func (i *modelItem) forgive() {
	if i.state != fdbpq.Leased {
		i.attempts = i.without(i.deliveries)
	}
}

// note keeps an attempt of an item: the first, and the newest.
func (q *modelQueue) note(i *modelItem, a trail.Attempt) {
	most := q.settings.Trail
	if most == 0 {
		return
	}
	q.counts["attempt"]++
	i.attempts = append(i.without(a.Number), a)
	if old := a.Number - most + 1; old > 1 {
		i.attempts = i.without(old)
	}
}

// withLives returns attempts with those of the lives before, which a header has.
func withLives(headers map[string][]string, attempts []trail.Attempt) []trail.Attempt {
	all, life := trail.Parse(headers[trail.Header]), int64(1)
	if len(all) > 0 {
		life = all[len(all)-1].Life + 1
	}
	for _, a := range attempts {
		a.Life = life
		all = append(all, a)
	}
	return all
}

// allTold returns the attempts of an item that the queue tells of: with those of the lives before,
// no more than it keeps, or than a header has.
func (q *modelQueue) allTold(i *modelItem) []trail.Attempt {
	all := withLives(i.Headers, i.attempts)
	past := len(all) - len(i.attempts)
	most := max(int(q.settings.Trail), past)
	if past > 0 && len(i.attempts) > 0 && len(all) > most {
		all = append(all[:1:1], all[len(all)-most+1:]...)
	}
	return all
}

// withTrail returns headers with attempts, if so many are kept: the last one always, and as many as
// the headers had.
func withTrail(
	headers map[string][]string, all []trail.Attempt, most int64,
) map[string][]string {
	if len(all) == 0 || most == 0 {
		return headers
	}
	carried := min(len(headers[trail.Header]), settings.MaxTrail)
	return withHeader(headers, trail.Header, trail.Values(all, max(int(most), carried, 2)))
}

func withHeader(headers map[string][]string, name string, values []string) map[string][]string {
	headers = maps.Clone(headers)
	if headers == nil {
		headers = map[string][]string{}
	}
	headers[name] = values
	return headers
}

// withoutNext returns an item as the model knows it, which is without the ids of successors.
func withoutNext(item *fdbpq.Item) *fdbpq.Item {
	if item.Headers[trail.HeaderNext] == nil {
		return item
	}
	bare := *item
	bare.Headers = maps.Clone(item.Headers)
	if delete(bare.Headers, trail.HeaderNext); len(bare.Headers) == 0 {
		bare.Headers = nil
	}
	return &bare
}

// endLife notes what a job that is done and kept has been through, and returns its headers.
func (f *modelFinished) endLife(most int64) map[string][]string {
	before := f.without(f.deliveries)
	done := f.attempt(trail.Done, f.at, "")
	f.trail = withLives(f.Headers, append(before, done))
	if len(before)+len(f.Headers[trail.Header]) == 0 || most == 0 {
		return f.Headers
	}
	headers := withTrail(f.Headers, f.trail, most)
	f.trail = trail.Parse(headers[trail.Header])
	return headers
}

// sameTrail reports whether attempts are those expected.
func sameTrail(got, want []trail.Attempt) bool {
	return fmt.Sprint(trail.Values(got, len(got)+1)) == fmt.Sprint(trail.Values(want, len(want)+1))
}
