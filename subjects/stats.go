package subjects

import (
	"encoding/json"
	"time"
)

// StatsOfQueues is the payload of a STATS request of service discovery that asks for [BridgeStats]
// with the busiest queues.
const StatsOfQueues = `{"queues":true}`

// StatsOfQueue is the payload that asks for BridgeStats with one queue.
func StatsOfQueue(kind Kind, queue string) []byte {
	payload, _ := json.Marshal(StatsRequest{Kind: kind.Short(), Queue: queue}) // never an error
	return payload
}

// StatsRequest is the payload of a STATS request, as far as it asks for [BridgeStats].
type StatsRequest struct {
	// Queues asks for the busiest queues.
	Queues bool `json:"queues,omitzero"`
	// Queue asks for this queue instead, and Kind is what [Kind.Short] returns.
	Kind  string `json:"kind,omitempty"`
	Queue string `json:"queue,omitempty"`
}

// MaxStatsQueues is the most queues in BridgeStats.
const MaxStatsQueues = 1000

// BridgeStats is what a bridge knows without asking its store: the member "bridge" of the reply to
// a STATS request with the payload [StatsOfQueues] or [StatsOfQueue].
type BridgeStats struct {
	// Ready means that the bridge takes requests and its last write to the store did not fail.
	Ready bool `json:"ready"`
	// Why says why the bridge is not ready.
	Why string `json:"why,omitempty"`
	// Waiters is how many pops wait for items, and Pending how many other requests wait or run.
	Waiters int   `json:"waiters"`
	Pending int64 `json:"pending"`
	// Store is the kind of the store, such as "embedded" or "fdb", if it is known.
	Store string `json:"store,omitempty"`
	// Bridges is how many bridges share the queues as far as this one knows, itself included.
	Bridges int `json:"bridges,omitzero"`
	// Total counts the items of all queues.
	Total Windows `json:"total"`
	// Since is from when on nothing is missing in the last hour and day of Total. It is zero if the
	// bridge is older: then it is when the bridge started.
	Since time.Time `json:"since,omitzero"`
	// Queues are the busiest first, up to MaxStatsQueues. If the request named a queue, they are
	// only that one, or none while the bridge counts it together with others because too many are
	// in use.
	Queues []QueueTraffic `json:"queues"`
	// More means that the bridge has counted items of queues that are not in Queues in the last
	// day, when it was asked for the busiest.
	More bool `json:"more,omitzero"`
}

// QueueTraffic is what one bridge knows of a queue. Add up what all bridges know. A queue that is
// not used for long starts again at 0.
type QueueTraffic struct {
	// Kind is what [Kind.Short] returns.
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	// Waiters is how many pops wait for items of the queue.
	Waiters int `json:"waiters,omitzero"`
	// Since is from when on nothing of the queue is missing in the last hour and day, if that was
	// in the last day: BridgeStats.Since, or a minute after the bridge had counted queues only
	// together.
	Since time.Time `json:"since,omitzero"`
	Windows
}

// Windows counts items: by this bridge since it started, in the last hour and in the last day. The
// last hour and day have as well what other bridges counted that are gone, so they may be more.
type Windows struct {
	Traffic
	Hour Traffic `json:"hour,omitzero"` // this minute and the 59 before it
	Day  Traffic `json:"day,omitzero"`  // this hour and the 23 before it
}

// Add adds what another bridge has counted.
func (w *Windows) Add(more *Windows) {
	w.Traffic.Add(&more.Traffic)
	w.Hour.Add(&more.Hour)
	w.Day.Add(&more.Day)
}

// Traffic counts what became of the items of a queue.
type Traffic struct {
	// In is how many items were pushed, duplicates apart, and Out how many were popped without a
	// lease or acknowledged.
	In  int64 `json:"in"`
	Out int64 `json:"out"`
	// Delivered is how many were popped, with or without a lease.
	Delivered int64 `json:"delivered,omitzero"`
	// Finished is how many of Out were acknowledged and are kept.
	Finished int64 `json:"finished,omitzero"`
	// Failed is how many leases ended without an acknowledgement: with -NAK, with +TERM, or because
	// they ran out. An item that fails again counts again.
	Failed int64 `json:"failed,omitzero"`
	// Dead is how many items of the queue became dead letters.
	Dead int64 `json:"dead,omitzero"`
}

// Add adds other items.
func (t *Traffic) Add(more *Traffic) {
	*t = Traffic{
		In: t.In + more.In, Out: t.Out + more.Out, Delivered: t.Delivered + more.Delivered,
		Finished: t.Finished + more.Finished, Failed: t.Failed + more.Failed,
		Dead: t.Dead + more.Dead,
	}
}

// Since returns the counts after an earlier time.
func (t *Traffic) Since(before *Traffic) Traffic {
	return Traffic{
		In: t.In - before.In, Out: t.Out - before.Out, Delivered: t.Delivered - before.Delivered,
		Finished: t.Finished - before.Finished, Failed: t.Failed - before.Failed,
		Dead: t.Dead - before.Dead,
	}
}

// ParseStatsRequest returns what a STATS request asks for, and whether it asks for [BridgeStats].
func ParseStatsRequest(payload []byte) (asked StatsRequest, wanted bool) {
	err := json.Unmarshal(payload, &asked)
	return asked, err == nil && (asked.Queues || asked.Queue != "")
}

// ParseBridgeStats returns the BridgeStats in the reply to a STATS request, or nil if it has none.
func ParseBridgeStats(payload []byte) (*BridgeStats, error) {
	reply, err := ParseReply[struct {
		Bridge *BridgeStats `json:"bridge"`
	}](payload)
	return reply.Bridge, err
}
