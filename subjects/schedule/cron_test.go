package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// everyMinute returns when an expression fires after one time and before another, by looking at
// each minute.
func (w wallTimes) everyMinute(after, before time.Time) (times []time.Time) {
	shows := func(t time.Time) time.Time {
		t = t.In(w.zone)
		return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	}
	matches := func(wall time.Time) bool { return w.day(wall) && w.hour(wall) && w.minute(wall) }

	// The clock was set back by at most a day before that.
	latest := shows(after.Add(-24 * time.Hour))
	for t := after.Add(-24 * time.Hour); t.Before(before); t = t.Add(time.Minute) {
		wall, fires := shows(t), false
		if !w.fixed() {
			fires = matches(wall)
		}
		for ; latest.Before(wall); latest = latest.Add(time.Minute) {
			fires = fires || w.fixed() && matches(latest.Add(time.Minute))
		}
		if fires && t.After(after) {
			times = append(times, t.UTC())
		}
	}
	return times
}

// Around each change of a zone's clock, a schedule fires at the times that looking at every minute
// finds. These clocks were changed at midnight and a minute after it, by half an hour, three hours
// and a day.
func TestClockChanges(t *testing.T) {
	from, to := at(t, "2009-06-01T00:00:00Z"), at(t, "2012-01-15T00:00:00Z")
	if harness.Nightly {
		from, to = at(t, "2001-01-01T00:00:00Z"), at(t, "2014-01-01T00:00:00Z")
	}

	for _, name := range []string{
		"America/St_Johns", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Gaza", "Antarctica/Casey",
		"Pacific/Apia",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}

		changes := 0
		_, change := from.In(zone).ZoneBounds()
		for !change.IsZero() && change.Before(to) {
			checkAround(t, change, zone)
			changes++
			_, change = change.In(zone).ZoneBounds()
		}
		if changes == 0 {
			t.Errorf("the clock of %s was never changed", name)
		}
	}
}

// checkAround compares the times of expressions with what everyMinute finds.
func checkAround(t *testing.T, change time.Time, zone *time.Location) {
	t.Helper()
	year, month, day := change.In(zone).Date()
	start, end := change.Add(-30*time.Hour), change.Add(30*time.Hour)

	for _, text := range []string{
		"0 0 * * *", "1 0 * * *", "30 0 * * *", "30 23 * * *", "0,59 0,1,23 * * *",
		"*/7 0 * * *", "30 * * * *", "45 1-3 * * *", "15 2 * * 0",
		fmt.Sprintf("0 0 %d %d *", day, month), fmt.Sprintf("5 1 %d %d *", day, month),
		fmt.Sprintf("50 23 %d * *", day),
	} {
		w, err := parseCron(text, zone)
		if err != nil {
			t.Fatal(err)
		}

		var got []time.Time
		for next := w.next(start); next.Before(end); next = w.next(next) {
			got = append(got, next.UTC())
		}

		if want := w.everyMinute(start, end); !slices.Equal(got, want) {
			t.Errorf("%s in %s around %d-%d-%d:\n%v, want\n%v",
				text, zone, year, month, day, got, want)
		}
	}
}
