package harness

// NATSActsOn has headers that nats-server 2.15 acts on when a message that has one is published, or
// when a stream takes it in.
var NATSActsOn = map[string][]string{
	"Nats-Trace-Dest":                             {"pq.other.push"},
	"Nats-Trace-Only":                             {"true"},
	"Nats-Trace-Origin-Account":                   {"A"},
	"Nats-Rollup":                                 {"all"},
	"Nats-Incr":                                   {"+1"},
	"Nats-Counter-Sources":                        {"{}"},
	"Nats-Marker-Reason":                          {"Purge"},
	"Nats-Expected-Stream":                        {"S"},
	"Nats-Expected-Last-Sequence":                 {"0"},
	"Nats-Expected-Last-Subject-Sequence":         {"0"},
	"Nats-Expected-Last-Subject-Sequence-Subject": {"x"},
	"Nats-Expected-Last-Msg-Id":                   {"x"},
	"Nats-Batch-Id":                               {"x"},
	"Nats-Batch-Sequence":                         {"1"},
	"Nats-Batch-Commit":                           {"1"},
	"Nats-Schedule":                               {"@every 1s"},
	"Nats-Schedule-Target":                        {"x"},
	"Nats-Schedule-Source":                        {"x"},
	"Nats-Schedule-TTL":                           {"1s"},
	"Nats-Schedule-Rollup":                        {"sub"},
	"Nats-Schedule-Time-Zone":                     {"UTC"},
	"Nats-Schedule-Next":                          {"purge"},
	"Nats-Scheduler":                              {"x"},
	"Nats-Stream-Source":                          {"S 1 > > x"},
	"Nats-Stream-Identity":                        {"x"},
	"Nats-Required-Api-Level":                     {"1"},
	"Nats-Response-Type":                          {"x"},
	"Nats-Pin-Id":                                 {"x"},
	"Nats-Last-Consumer":                          {"1"},
	"Nats-Last-Stream":                            {"1"},
	"Nats-Consumer-Stalled":                       {"pq.other.push"},
	"Nats-Of-A-Later-Version":                     {"x"},
}

// NATSAdds has headers that NATS servers themselves add to requests on the way.
var NATSAdds = map[string][]string{
	"Nats-Request-Info": {`{"acc":"A"}`},
	"Nats-Trace-Hop":    {"1"},
	"Nats-Trace-Dest":   {"trace disabled"},
	"Nmqtt-Pub":         {"1"},
	"Nmqtt-Subject":     {"pq.other.push"},
	"Nmqtt-Mapped":      {"pq.other.push"},
	"Nmqtt-PubRel":      {"1"},
}
