package client_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// A push says which group its item has, and its weight; an item says which it has.
func TestGroups(t *testing.T) {
	_, jobs := newQueue(t)
	for _, value := range []string{"a1", "a2", "a3"} {
		succeeds(t)(jobs.Push(t.Context(), 0, []byte(value), client.Group("a"), client.Weight(2)))
	}

	b := client.Message{Value: []byte("b1")}.With(client.Group("b"))
	succeeds(t)(jobs.PushBatch(t.Context(), []client.PushItem{{Message: b}}))

	for _, bad := range []client.PushOption{client.Group(""), client.Weight(3)} {
		failsWith(t, "a bad group", client.ErrBadRequest)(jobs.Push(t.Context(), 0, nil, bad))
	}

	info, err := jobs.Info(t.Context())
	if err != nil || info.Groups["a"].Ready != 3 || info.Groups["b"].Ready != 1 || info.GroupsMore {
		t.Errorf("%+v, %v", info, err)
	}

	for _, want := range []string{"a1", "b1", "a2", "a3"} {
		item, err := jobs.Pop(t.Context())
		if err != nil || string(item.Value) != want || item.Group != want[:1] {
			t.Errorf("%+v, %v: want %s", item, err, want)
		}
	}
}
