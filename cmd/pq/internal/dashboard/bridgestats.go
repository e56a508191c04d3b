package dashboard

import "encoding/json"

// serviceName is the name of bridges in service discovery.
const serviceName = "pqbridge"

type bridgeStats struct {
	Ready   bool         `json:"ready"`
	Why     string       `json:"why"`
	Waiters int64        `json:"waiters"`
	Pending int64        `json:"pending"`
	Store   string       `json:"store"`
	Queues  []queueStats `json:"queues"`
}

type queueStats struct {
	Kind  string `json:"kind"`
	Queue string `json:"queue"`
	In    int64  `json:"in"`
	Out   int64  `json:"out"`
}

func parseBridgeStats(data []byte) (bridgeStats, error) {
	var m struct {
		Bridge bridgeStats `json:"bridge"`
	}
	m.Bridge.Ready = true
	err := json.Unmarshal(data, &m)
	return m.Bridge, err
}
