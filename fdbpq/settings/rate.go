package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of rates.
const (
	MaxRateCount = 1_000_000
	MinRatePer   = time.Second
	MaxRatePer   = 24 * time.Hour
)

// Rate is how often items may be delivered: Count of them in each Per, and as many at once after a
// pause.
type Rate struct {
	Count int64
	Per   time.Duration
}

// ParseRate reads a rate such as "10/1s". "" is the zero Rate, which is no limit.
func ParseRate(text string) (r Rate, err error) {
	if text == "" {
		return r, nil
	}

	count, per, _ := strings.Cut(text, "/")
	r.Count, err = strconv.ParseInt(count, 10, 64)
	if err == nil {
		r.Per, err = time.ParseDuration(per)
	}
	if err != nil || strconv.FormatInt(r.Count, 10) != count || r.Count < 1 || r.Count > MaxRateCount || r.Per < MinRatePer || r.Per > MaxRatePer {
		return Rate{}, badRate(text)
	}
	return r, nil
}

func badRate(text string) error {
	return fmt.Errorf(`%+.130q: want n/duration, such as "10/1s", with 1 to %d and 1s to 24h`, text, MaxRateCount)
}

// Interval is the time after which one more item may be delivered. It is rounded up, so that no
// period has more than Count.
func (r Rate) Interval() time.Duration {
	return (r.Per + time.Duration(r.Count) - 1) / time.Duration(r.Count)
}

// checkRate returns what is wrong with the text of a rate.
func checkRate(text string) error {
	if text == "" { // no limit is not set
		return badRate(text)
	}
	_, err := ParseRate(text)
	return err
}
