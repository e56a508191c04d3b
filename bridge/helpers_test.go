package bridge_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/testenv"
)

// metricIs returns an error unless the series has the value.
func metricIs(b *testenv.Bridge, series string, want float64) error {
	got, err := metric(b, series)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", series, got, want)
	}
	return err
}

func metric(b *testenv.Bridge, series string) (float64, error) {
	_, body, err := b.Get("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no series %s", series)
}

func wantMetric(t *testing.T, b *testenv.Bridge, series string, want float64) {
	t.Helper()
	// A counter may still be on its way when the reply is there.
	testenv.Eventually(t, func() error { return metricIs(b, series, want) })
}

func newKeyspace(t testing.TB, priority, fifo string) *fdbpq.Keyspace {
	t.Helper()
	k, err := fdbpq.NewKeyspace(priority, fifo, fdbpq.RawValues)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
