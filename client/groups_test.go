package client_test

import (
	"github.com/pqbridge/pqbridge/testenv"
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// Groups are served in turn by their weights, one by one and in batches, and items say which they have.
func TestGroups(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	jobs, mail := client.New(e.Conn).PriorityQueue("jobs"), client.New(e.Conn).Queue("mail")
	heavy := []client.PushOption{client.Group("a"), client.Weight(2)}
	for _, value := range []string{"a1", "a2", "a3", "a4"} {
		succeeds(t)(jobs.Push(t.Context(), 0, []byte(value), heavy...))
		succeeds(t)(mail.EnqueueMsg(t.Context(), client.Message{Value: []byte(value)}.With(heavy...)))
	}
	var items []client.PushItem
	for _, value := range []string{"b1", "b2"} {
		items = append(items, client.PushItem{Message: client.Message{Value: []byte(value)}.With(client.Group("b"))})
	}
	succeeds(t)(jobs.PushBatch(t.Context(), items))

	for _, bad := range []client.PushOption{client.Group(""), client.Weight(3)} {
		failsWith(t, "a bad group", client.ErrBadRequest)(jobs.Push(t.Context(), 0, nil, bad))
	}

	info, err := jobs.Info(t.Context())
	if err != nil || info.Groups["a"].Ready != 4 || info.Groups["b"].Ready != 2 || info.GroupsMore {
		t.Errorf("%+v, %v", info, err)
	}
	for _, want := range []string{"a1", "a2", "b1", "a3", "a4", "b2"} {
		item, err := jobs.PopMin(t.Context())
		if err != nil || string(item.Value) != want || item.Group != want[:1] {
			t.Errorf("%+v, %v: want %s", item, err, want)
		}
	}
	if item, err := mail.Dequeue(t.Context()); err != nil || item.Group != "a" {
		t.Errorf("%+v, %v", item, err)
	}
}
