package subjects

import "encoding/json"

// StatsOfQueues is the payload of a STATS request of service discovery whose replies are to have
// BridgeStats, {"queues":true}.
const StatsOfQueues = `{"queues":true}`

// MaxStatsQueues is the most queues that BridgeStats has.
const MaxStatsQueues = 1000

// BridgeStats is the member "bridge" of a reply to a STATS request that asks for it: what a bridge
// knows without asking its store.
type BridgeStats struct {
	// Ready says that the bridge takes requests, and that the last write to the store was no failure.
	Ready bool `json:"ready"`
	// Why says why not.
	Why string `json:"why,omitempty"`
	// Waiters is how many pops wait for items, and Pending how many other requests wait or run.
	Waiters int   `json:"waiters"`
	Pending int64 `json:"pending"`
	// Store is the kind of the store, such as "embedded" or "fdb", if it is known.
	Store string `json:"store,omitempty"`
	// Queues are those in use with the most traffic, the busiest first.
	Queues []QueueTraffic `json:"queues"`
}

// QueueTraffic counts the items of a queue that came and went by requests to one bridge, since that
// has the queue in use: the counts begin at 0 again when it was not used for long.
type QueueTraffic struct {
	// Kind is as Kind.Short returns it.
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	// In is how many items were pushed, and Out how many were popped, acknowledged, given up, removed
	// or sent back.
	In  int64 `json:"in"`
	Out int64 `json:"out"`
}

// WantsBridgeStats reports whether the payload of a STATS request asks for BridgeStats.
func WantsBridgeStats(payload []byte) bool {
	var wants struct {
		Queues bool `json:"queues"`
	}
	return json.Unmarshal(payload, &wants) == nil && wants.Queues
}

// ParseBridgeStats returns the BridgeStats in a reply to a STATS request; nil if it has none, as that
// of an earlier version.
func ParseBridgeStats(payload []byte) (*BridgeStats, error) {
	reply, err := ParseReply[struct {
		Bridge *BridgeStats `json:"bridge"`
	}](payload)
	return reply.Bridge, err
}
