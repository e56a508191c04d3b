package subjects

import (
	"reflect"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// The reply to an info is read as it was written, with what is unknown and what is not there.
func TestQueueInfo(t *testing.T) {
	age, due := 1500*time.Millisecond, time.Date(2026, 11, 20, 8, 37, 57, 685968000, time.UTC)

	for _, test := range []struct {
		want string
		info QueueInfo
	}{
		{
			`{"queue":"jobs","ready":3,"leased":1,"delayed":2,` +
				`"priorities":{"-7":1,"1":1,"10":1},"priorities_more":true,` +
				`"next_due":"2026-11-20T08:37:57.685968Z","oldest_age_s":1.5,` +
				`"settings":{"max_deliver":5}}`,
			QueueInfo{
				Queue:          "jobs",
				Ready:          3,
				Leased:         1,
				Delayed:        2,
				Priorities:     []PriorityCount{{-7, 1}, {1, 1}, {10, 1}},
				PrioritiesMore: true,
				OldestAge:      &age,
				NextDue:        &due,
				Settings:       settings.Settings{MaxDeliver: 5},
			},
		},
		{
			`{"queue":"jobs","ready":0,"leased":0,"delayed":0,"priorities":{},` +
				`"next_due":null,"oldest_age_s":null,"settings":{}}`,
			QueueInfo{Queue: "jobs", Priorities: []PriorityCount{}},
		},
		{
			`{"queue":"jobs","ready":3,"leased":1,"delayed":0,"priorities":{},` +
				`"groups":{"acme":{"ready":3,"leased":1},"b":{"ready":0,"leased":0}},` +
				`"groups_more":true,"groups_at_limit":2,` +
				`"next_due":null,"oldest_age_s":null,"settings":{}}`,
			QueueInfo{
				Queue:         "jobs",
				Ready:         3,
				Leased:        1,
				Priorities:    []PriorityCount{},
				GroupsMore:    true,
				GroupsAtLimit: 2,
				Groups:        map[string]GroupCount{"acme": {3, 1}, "b": {}},
			},
		},
		{
			`{"queue":"mail","ready":0,"leased":0,"delayed":0,"priorities":null,` +
				`"next_due":null,"oldest_age_s":null,"settings":{}}`,
			QueueInfo{Queue: "mail"},
		},
		{
			`{"queue":"jobs","ready":0,"leased":0,"delayed":0,"priorities":null,` +
				`"next_due":null,"consumers":[` +
				`{"name":"a","order":"max","ack_wait":"1m0s","max_deliver":5,` +
				`"max_ack_pending":7,"inactive_threshold":"5s",` +
				`"created":"2026-11-20T08:37:57.685968Z","description":"mail"},` +
				`{"name":"b","order":"min"}],"oldest_age_s":null,"settings":{}}`,
			QueueInfo{Queue: "jobs", Consumers: []QueueConsumer{
				{
					Name:              "a",
					Order:             "max",
					AckWait:           time.Minute,
					MaxDeliver:        5,
					MaxAckPending:     7,
					InactiveThreshold: 5 * time.Second,
					Created:           due,
					Description:       "mail",
				},
				{Name: "b", Order: "min"},
			}},
		},
	} {
		if got := string(test.info.Encode()); got != test.want {
			t.Errorf("encoded: %s, want %s", got, test.want)
		}

		got, err := ParseQueueInfo([]byte(test.want))
		if err != nil || !reflect.DeepEqual(*got, test.info) {
			t.Errorf("parsed %s: %+v, %v, want %+v", test.want, got, err, test.info)
		}
	}

	for _, bad := range []string{
		"", "x", `{"ready":"1"}`, `{"priorities":{"x":1}}`, `{"next_due":"noon"}`,
		`{"settings":{"max_deliver":"x"}}`, `{"consumers":[{"ack_wait":"1"}]}`,
		`{"consumers":[{"inactive_threshold":"x"}]}`, `{"consumers":[{"created":"noon"}]}`,
		`{"consumers":[1]}`,
	} {
		if got, err := ParseQueueInfo([]byte(bad)); err == nil {
			t.Errorf("parsed %s: %+v", bad, got)
		}
	}

	got, err := ParseQueueInfo([]byte(`{"queue":"jobs","later":1}`))
	if err != nil || got.Queue != "jobs" {
		t.Errorf("with an unknown member: %+v, %v", got, err)
	}
}
