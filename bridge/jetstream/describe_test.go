package jetstream

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Stored consumers show without the API, with all that they set.
func TestDescribe(t *testing.T) {
	s := newSystem(t)
	long := strings.Repeat("é", 300)

	for name, config := range map[string]string{
		"full": `"durable_name":"full","ack_wait":60000000000,"max_deliver":5,` +
			`"max_ack_pending":7,"metadata":{"pq.order":"max"},"description":"` + long + `"`,
		"plain": `"durable_name":"plain","max_ack_pending":-1`,
		"brief": `"inactive_threshold":5000000000`,
	} {
		config = `{"ack_policy":"explicit","name":"` + name + `",` + config + `}`
		s.succeeds("pq.API.CONSUMER.CREATE.jobs."+name,
			`{"stream_name":"jobs","config":`+config+`}`)
	}

	now := s.clock.now().UTC()
	stored := s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpConsumers})[0].Records
	stored = append(stored, fdbpq.Record{Name: "unreadable", Value: []byte("{")})

	want := []subjects.QueueConsumer{
		{
			Name:              "brief",
			Order:             "min",
			MaxAckPending:     defaultAckPending,
			InactiveThreshold: 5 * time.Second,
			Created:           now,
		},
		{
			Name:          "full",
			Order:         "max",
			AckWait:       time.Minute,
			MaxDeliver:    5,
			MaxAckPending: 7,
			Created:       now,
			Description:   long[:maxShown],
		},
		{Name: "plain", Order: "min", Created: now},
		{Name: "unreadable"},
	}
	if got := Describe(stored); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}

	if got := Describe(nil); got != nil {
		t.Errorf("of none: %+v", got)
	}
}
