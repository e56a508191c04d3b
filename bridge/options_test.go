package bridge_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
)

func TestOptionsListAllProblems(t *testing.T) {
	err := bridge.Options{
		QueueGroup: "a b", HTTPTimeout: -1, MetricQueues: -2, Lanes: -1, MaxBatch: -1, MaxBatchBytes: 1 << 30,
		MaxPending: -1, MaxPendingBytes: -1, MaxWaiters: -1, RequestTimeout: -time.Second, ShutdownTimeout: -time.Second, Version: "one",
	}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"DB", "Keyspace", "Grammar", `QueueGroup is "a b"`, "HTTPTimeout", "MetricQueues", "Lanes",
		"MaxBatch is -1", "MaxBatchBytes", "MaxPending is -1", "MaxPendingBytes", "MaxWaiters is -1", "RequestTimeout", "ShutdownTimeout", `Version is "one"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestOptionsBounds(t *testing.T) {
	for name, o := range map[string]bridge.Options{
		"NATSURL":         {NATSURL: "nats://host:99999"},
		"HTTPTimeout":     {HTTPTimeout: 24*time.Hour + 1},
		"MetricQueues":    {MetricQueues: 1_000_001},
		"Lanes":           {Lanes: 1025},
		"MaxBatch":        {MaxBatch: 1<<16 + 1},
		"MaxBatchBytes":   {MaxBatchBytes: 8_000_001},
		"LeaseRoom":       {LeaseRoom: 9_000_001},
		"MaxPending":      {MaxPending: 1<<30 + 1},
		"MaxPendingBytes": {MaxPendingBytes: math.MinInt},
		"MaxWaiters":      {MaxWaiters: 1<<30 + 1},
		"RequestTimeout":  {RequestTimeout: time.Millisecond - 1},
		"ShutdownTimeout": {ShutdownTimeout: math.MaxInt64},
	} {
		if err := o.Validate(); !strings.Contains(err.Error(), "bridge: "+name+" is ") {
			t.Errorf("%s is not in:\n%v", name, err)
		}
	}
	least := bridge.Options{
		NATSURL: "host:1", HTTPTimeout: time.Millisecond, MetricQueues: -1, Lanes: 1, MaxBatch: 1, MaxBatchBytes: 1,
		LeaseRoom: 1, MaxPending: 1, MaxPendingBytes: 1, MaxWaiters: 1, RequestTimeout: time.Millisecond, ShutdownTimeout: 1,
	}
	for _, line := range strings.Split(least.Validate().Error(), "\n") {
		if required := []string{"bridge: DB ", "bridge: Keyspace ", "bridge: Grammar "}; !slices.ContainsFunc(required, func(s string) bool { return strings.HasPrefix(line, s) }) {
			t.Errorf("the smallest values are refused: %s", line)
		}
	}
}

// Options of the NATS client that the bridge cannot work with are refused.
func TestBadNATSOptions(t *testing.T) {
	for word, option := range map[string]nats.Option{
		"nats.NoEcho":                      nats.NoEcho(),
		"nats.NoCallbacksAfterClientClose": nats.NoCallbacksAfterClientClose(),
	} {
		err := bridge.Options{NATSOptions: []nats.Option{nil, nats.Name("x"), option}}.Validate()
		if err == nil || !strings.Contains(err.Error(), "NATSOptions is "+word) {
			t.Errorf("%q is not in:\n%v", word, err)
		}
	}
	good := bridge.Options{NATSOptions: []nats.Option{nil, nats.Name("x")}}.Validate()
	if good == nil || strings.Contains(good.Error(), "NATSOptions") {
		t.Errorf("valid options are refused: %v", good)
	}
}
