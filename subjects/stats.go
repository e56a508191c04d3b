package subjects

import "encoding/json"

// StatsOfQueues is the payload of a STATS request of service discovery that asks for [BridgeStats].
const StatsOfQueues = `{"queues":true}`

// MaxStatsQueues is the most queues in BridgeStats.
const MaxStatsQueues = 1000

// BridgeStats is what a bridge knows without asking its store: the member "bridge" of the reply to
// a STATS request with the payload [StatsOfQueues].
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
	// Queues are those in use, the busiest first, up to MaxStatsQueues.
	Queues []QueueTraffic `json:"queues"`
}

// QueueTraffic counts the items of a queue that came and went with requests to one bridge. A queue
// that is not used for long starts again at 0.
type QueueTraffic struct {
	// Kind is what [Kind.Short] returns.
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	// In is how many items were pushed, and Out how many were popped, acknowledged or terminated.
	In  int64 `json:"in"`
	Out int64 `json:"out"`
}

// WantsBridgeStats reports whether the payload of a STATS request asks for [BridgeStats].
func WantsBridgeStats(payload []byte) bool {
	var wants struct {
		Queues bool `json:"queues"`
	}
	return json.Unmarshal(payload, &wants) == nil && wants.Queues
}

// ParseBridgeStats returns the BridgeStats in the reply to a STATS request, or nil if it has none.
func ParseBridgeStats(payload []byte) (*BridgeStats, error) {
	reply, err := ParseReply[struct {
		Bridge *BridgeStats `json:"bridge"`
	}](payload)
	return reply.Bridge, err
}
