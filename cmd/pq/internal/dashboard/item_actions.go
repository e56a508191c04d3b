package dashboard

import (
	"context"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/terminal"
	"github.com/pqbridge/pqbridge/subjects"
)

// itemAction is an action on items, up to subjects.MaxItems at a time, and how it is called.
type itemAction struct {
	Do, Done, Danger string

	verb subjects.Verb
	do   func(q *client.Queue, ctx context.Context, ids []string) ([]client.ItemResult, error)
	// byPlace: do takes places, so that an item stays that has left the place that the page showed.
	byPlace bool
}

const goneForGood = "This cannot be undone."

var itemActions = map[string]itemAction{
	"remove": {Do: "Remove", Done: "removed", Danger: goneForGood, verb: subjects.Remove},
	"redrive": {
		Do: "Redrive", Done: "redriven",
		verb: subjects.Redrive, do: (*client.Queue).RedriveItemsAt, byPlace: true,
	},
	"release": {
		Do: "Release", Done: "released", Danger: "A holder that is still at work loses its lease.",
		verb: subjects.Release, do: (*client.Queue).ReleaseItems,
	},
	"move":  {Do: "Move", Done: "moved", verb: subjects.Move},   // to a priority
	"purge": {Do: "Purge", Done: "purged", Danger: goneForGood}, // without ids
}

// Noun is what the action is about to be done to.
func (v *actionView) Noun() string {
	if v.State == subjects.StateDone {
		return "finished job"
	}
	return "item"
}

// IsAgain reports whether finished jobs are to run again.
func (v *actionView) IsAgain() bool {
	return v.Action == "redrive" && v.State == subjects.StateDone
}

// Asks is what the action is about to do, to items of some queue, such as " of jobs".
func (v *actionView) Asks(of string) string {
	items := terminal.Plural(v.Count, v.Noun()) + of
	if v.IsAgain() {
		return "Run " + items + " again"
	}
	return itemActions[v.Action].Do + " " + items
}
