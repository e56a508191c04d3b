package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/netresearch/go-cron"
)

// cronFields are the fields of a cron expression, as in crontab(5).
const cronFields = cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow |
	cron.Descriptor | cron.DowOrDom

// star is the bit of a field that begins with a star.
const star = 1 << 63

// horizon is how far ahead to look for a matching time: a 29 February on a Sunday can be forty
// years away.
const horizon = 40 * 366 * 24 * time.Hour

// bounds are the first and the last value of each field.
var bounds = [...][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 7}}

// wallTimes are the times at which a cron expression fires in a zone.
type wallTimes struct {
	spec *cron.SpecSchedule
	zone *time.Location
}

// parseCron reads a cron expression other than @every.
func parseCron(text string, zone *time.Location) (wallTimes, error) {
	if strings.Contains(text, "=") {
		return wallTimes{}, errors.New("it cannot have a zone")
	}

	fields := strings.Fields(text)
	if !strings.HasPrefix(text, "@") {
		if len(fields) != len(bounds) {
			return wallTimes{}, fmt.Errorf("it has %d fields", len(fields))
		}

		for i, field := range fields {
			var err error
			if fields[i], err = checkField(field, bounds[i]); err != nil {
				return wallTimes{}, err
			}
		}
	}

	parsed, err := cron.MustNewParser(cronFields).Parse(strings.Join(fields, " "))
	if err != nil {
		return wallTimes{}, err
	}

	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return wallTimes{}, errors.New("it does not say at which times")
	}

	// The parser forgets the star of "*/5", which counts as one for the rules below.
	sets := []*uint64{&spec.Minute, &spec.Hour, &spec.Dom, &spec.Month, &spec.Dow}
	for i, field := range strings.Fields(text) { // a name such as @daily is one, without a star
		if strings.HasPrefix(field, "*") {
			*sets[i] |= star
		}
	}

	return wallTimes{spec, zone}, nil
}

// part is a part of a field: a star, a value or a range, and a step.
var part = regexp.MustCompile(`^(?:\*|(\d+|[A-Za-z]{3})(?:-(\d+|[A-Za-z]{3}))?)(?:/(\d+))?$`)

// checkField refuses forms that crontab(5) does not have, although the parser accepts them with a
// meaning of its own. It returns the field as the parser wants it: without steps that leave only
// the first value, which the parser refuses.
func checkField(field string, bounds [2]int) (string, error) {
	parts := strings.Split(field, ",")
	for i, text := range parts {
		m := part.FindStringSubmatch(text)
		if m == nil {
			return "", fmt.Errorf("%.32q in %.32q is not of a form such as "+
				`"*", "5", "1-5", "mon", "*/15" or "1-5/2"`, text, field)
		}

		first, last := bounds[0], bounds[1]
		if m[1] != "" {
			first = number(m[1])
		}

		if m[2] != "" {
			last = number(m[2])
		}

		if m[2] != "" && first > last {
			return "", fmt.Errorf("%q goes backwards: "+
				`write "22-5" as "22-23,0-5", and "sat-sun" as "6-7"`, text)
		}

		if step, err := strconv.Atoi(m[3]); err == nil && step > last-first && last <= bounds[1] {
			parts[i] = cmp.Or(m[1], strconv.Itoa(first))
		}
	}

	return strings.Join(parts, ","), nil
}

// names are the days of the week, from 0, and the months, from 1.
const names = "sunmontuewedthufrisatjanfebmaraprmayjunjulaugsepoctnovdec"

// number returns the number of a value that may be the name of a day or a month.
func number(value string) int {
	if n, err := strconv.Atoi(value); err == nil {
		return n
	}
	n := strings.Index(names, strings.ToLower(value)) / 3
	if n > 6 {
		n -= 6
	}
	return n
}

// fixed reports whether each time fires once a day: there is no star in the minute and the hour.
func (w wallTimes) fixed() bool { return (w.spec.Minute|w.spec.Hour)&star == 0 }

// day reports whether the date matches.
func (w wallTimes) day(t time.Time) bool {
	s := w.spec
	dom, dow := s.Dom>>t.Day()&1 == 1, s.Dow>>t.Weekday()&1 == 1
	if (s.Dom|s.Dow)&star == 0 { // then one of them is enough
		return w.month(t) && (dom || dow)
	}
	return w.month(t) && dom && dow
}

func (w wallTimes) month(t time.Time) bool { return w.spec.Month>>t.Month()&1 == 1 }

func (w wallTimes) hour(t time.Time) bool { return w.spec.Hour>>t.Hour()&1 == 1 }

func (w wallTimes) minute(t time.Time) bool { return w.spec.Minute>>t.Minute()&1 == 1 }

// next returns the first matching time after another, or the zero time if there is none within the
// horizon.
func (w wallTimes) next(after time.Time) time.Time {
	t := after.In(w.zone).Truncate(time.Minute).Add(time.Minute)
	for last := t.Add(horizon); t.Before(last); {
		switch {
		case w.fixed() && w.skipped(t):
			return t
		case !w.day(t): // on to the next date, or to the first that matches by the calendar
			t = ahead(t, time.Duration(24*60-t.Hour()*60-t.Minute())*time.Minute)
			if near := w.nearDay(t); near.After(t) {
				t = near
			}
		case !w.hour(t):
			t = ahead(t, time.Duration(60-t.Minute())*time.Minute)
		case !w.minute(t), w.fixed() && shift(t) < 0 && w.again(t):
			t = t.Add(time.Minute)
		default:
			return t
		}
	}

	return time.Time{}
}

// nearDay returns a time up to two days before the first matching date from t on. It goes by the
// calendar alone, without a zone, so that years of days take microseconds.
func (w wallTimes) nearDay(t time.Time) time.Time {
	date := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC)
	for last := date.Add(horizon); !w.day(date) && date.Before(last); {
		if w.month(date) {
			date = date.Add(24 * time.Hour)
		} else {
			date = time.Date(date.Year(), date.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		}
	}
	return time.Date(date.Year(), date.Month(), date.Day()-2, 0, 0, 0, 0, w.zone)
}

// ahead returns the time after a duration, or the time before it at which the clock is changed.
func ahead(t time.Time, d time.Duration) time.Time {
	// On the last day of a leap year after 2037, ZoneBounds returns a change before t, which is
	// wrong.
	if _, change := t.ZoneBounds(); change.After(t) && change.Before(t.Add(d)) {
		return change.In(t.Location())
	}
	return t.Add(d)
}

// shift returns by how much the clock was set forward at its last change before t; back is
// negative.
func shift(t time.Time) time.Duration {
	changed, _ := t.ZoneBounds()
	if changed.IsZero() {
		return 0
	}
	_, before := changed.Add(-1).In(t.Location()).Zone()
	_, now := t.Zone()
	return time.Duration(now-before) * time.Second
}

// skipped reports whether the clock was set forward at t and skipped a time that matches.
func (w wallTimes) skipped(t time.Time) bool {
	changed, _ := t.ZoneBounds()
	gap := shift(t)
	if gap <= 0 || !changed.Equal(t) {
		return false
	}

	// What the clock shows at t, as a time in UTC.
	shown := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	for wall := shown.Add(-gap); wall.Before(shown); wall = wall.Add(time.Minute) {
		if w.day(wall) && w.hour(wall) && w.minute(wall) {
			return true
		}
	}

	return false
}

// again reports whether the clock, after it was set back, shows t for the second time.
func (w wallTimes) again(t time.Time) bool {
	changed, _ := t.ZoneBounds()
	return t.Before(changed.Add(-shift(t)))
}
