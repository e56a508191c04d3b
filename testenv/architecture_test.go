package testenv_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pqbridge/pqbridge"

// What the wire and the queues stand on.
const (
	settings   = module + "/subjects/settings"
	schedule   = module + "/subjects/schedule"
	strictJSON = module + "/subjects/strictjson"
)

// shared may be imported by every package that knows queues, with or without a store.
var shared = []string{settings, schedule, strictJSON}

// pure packages do no I/O. The list of each has all that it may import beside the standard library.
var pure = map[string][]string{
	"subjects":            {settings, schedule, strictJSON, jsonV2},
	"subjects/settings":   {strictJSON},
	"subjects/schedule":   {strictJSON, "github.com/netresearch/go-cron"},
	"subjects/strictjson": {jsonV2},
	"fdbpq/tuple":         {},
}

// jsonV2 reads and writes bytes only, as do the packages below it.
const jsonV2 = "github.com/go-json-experiment/json"

// rules say which of the project's packages may import what; tests may import anything.
// A name stands for the package and those below it.
var rules = []struct {
	imported string
	by       []string // relative to the module; none means nobody
	why      string
}{
	{
		"github.com/nats-io",
		[]string{"bridge", "client", "cmd", "testenv", "docs/example"},
		"queues do not know NATS",
	},
	{module + "/bridge", []string{"cmd", "testenv"}, "queues do not know NATS"},
	{
		"github.com/cockroachdb/pebble/v2",
		[]string{"fdbpq/kv/pebblekv", "testenv"},
		"one engine, one package",
	},
	{
		"github.com/apple/foundationdb",
		[]string{"fdbpq/kv/fdbkv", "testenv", "docs/example/foundationdb"},
		"one engine, one package",
	},
	{
		module + "/fdbpq/kv/pebblekv",
		[]string{"cmd/pqbridge", "testenv"},
		"queues do not know their engine",
	},
	{
		module + "/fdbpq/kv/fdbkv",
		[]string{"cmd/pqbridge", "testenv", "docs/example/foundationdb"},
		"queues do not know their engine",
	},
	{module + "/fdbpq/kv/memkv", []string{"testenv"}, "the model engine is for tests"},
	{module + "/fdbpq/kv/faultkv", []string{"testenv"}, "faults are for tests"},
	{module + "/fdbpq/kv/countkv", []string{"testenv"}, "counting is for tests"},
	{
		"testing",
		[]string{"testenv", "fdbpq/kv/kvtest", "fdbpq/fdbpqtest"},
		"no test code in the programs",
	},
	{module + "/testenv", []string{"testenv"}, "no test code in the programs"},
	{
		module + "/fdbpq",
		[]string{"bridge", "cmd/pqbridge", "testenv", "fdbpq", "docs/example/foundationdb"},
		"the client needs no store",
	},
	{
		module + "/subjects",
		[]string{"bridge", "client", "cmd", "testenv"},
		"queues do not know the wire",
	},
	{"github.com/prometheus", []string{"bridge", "testenv"}, "metrics belong to the service"},
}

// room is a package below bridge. None knows the bridge, nor a room that it does not use.
type room struct {
	uses    []string // of the packages below bridge
	nats    bool     // it may know NATS
	metrics bool     // it may know Prometheus
}

var rooms = map[string]room{
	"bridge/dispatch":      {uses: []string{signal}},
	signal:                 {},
	"bridge/internal/wire": {nats: true},
	"bridge/jetstream":     {uses: append(slices.Clip(most), "bridge/jetstream/leaf"), nats: true},
	// Of that only logins, ids and the tree of subjects.
	"bridge/jetstream/leaf": {uses: []string{signal}, nats: true},
	"bridge/outage":         {nats: true},
	"bridge/outbox":         {uses: most, nats: true},
	"bridge/peers":          {uses: most, nats: true},
	"bridge/requests": {
		uses: append(slices.Clip(most), "bridge/jetstream", "bridge/outbox", "bridge/peers",
			"bridge/results"),
		nats: true,
	},
	"bridge/results":       {uses: []string{"bridge/dispatch", signal}},
	"bridge/sources":       {uses: most, nats: true},
	"bridge/web":           {uses: []string{"bridge/web/connlimit"}, metrics: true},
	"bridge/web/connlimit": {},
}

const signal = "bridge/internal/signal"

// most are the rooms that most of the others use.
var most = []string{"bridge/dispatch", "bridge/internal/wire", signal}

// below fdbpq, what a package may use besides the contract of stores, tuples, settings and
// schedules. Packages that are not named may use none of these.
var queueRooms = map[string][]string{
	"fdbpq/internal/codec": {},
	"fdbpq/internal/state": {"fdbpq/internal/codec"},
	"fdbpq/internal/due":   {"fdbpq/internal/codec", "fdbpq/internal/state"},
	"fdbpq":                {"fdbpq/internal/codec", "fdbpq/internal/state", "fdbpq/internal/due"},
	"fdbpq/staged": {
		"fdbpq", "fdbpq/internal/codec", "fdbpq/internal/state", "fdbpq/internal/due",
	},
	"fdbpq/migrate": {"fdbpq", "fdbpq/internal/codec"},
}

// refuses returns why the room may not import a package, "" if it may.
func (r room) refuses(imported string) string {
	name := strings.TrimPrefix(imported, module+"/")
	switch {
	case below(imported, module+"/bridge") && !slices.Contains(r.uses, name):
		return "arrows between the rooms of the bridge go down"
	case below(imported, "github.com/nats-io") && !r.nats:
		return "it does not know NATS"
	case below(imported, "github.com/prometheus") && !r.metrics:
		return "the bridge counts, not its rooms"
	}
	return ""
}

// Every package below bridge is a room with rules.
func TestArchitectureOfRooms(t *testing.T) {
	for _, p := range packages(t) {
		relative := strings.TrimPrefix(p.ImportPath, module+"/")
		if _, ok := rooms[relative]; !ok && strings.HasPrefix(relative, "bridge/") {
			t.Errorf("%s has no rules", relative)
		}
	}
}

// below reports whether the package is the named one or below it.
func below(path, name string) bool { return path == name || strings.HasPrefix(path, name+"/") }

// Packages import only what the design allows.
func TestArchitecture(t *testing.T) {
	for _, p := range packages(t, "-tags", "fdb") {
		relative := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imported := range p.Imports {
			if slices.Contains(shared, imported) {
				continue
			}
			for _, rule := range rules {
				if !below(imported, rule.imported) || below(p.ImportPath, rule.imported) {
					continue
				}
				mayImport := func(by string) bool { return below(relative, by) }
				if !slices.ContainsFunc(rule.by, mayImport) {
					t.Errorf("%s imports %s: %s", relative, imported, rule.why)
				}
			}
		}
		if below(relative, "fdbpq/kv") && slices.Contains(p.Imports, module+"/fdbpq") {
			t.Errorf("%s imports fdbpq: engines do not know what is stored in them", relative)
		}

		for _, imported := range p.Imports {
			used := strings.TrimPrefix(imported, module+"/")
			_, isRoom := queueRooms[used]
			if isRoom && below(relative, "fdbpq") && !slices.Contains(queueRooms[relative], used) &&
				!below(relative, "fdbpq/fdbpqtest") {
				t.Errorf("%s imports %s: arrows between the rooms of the queues go down",
					relative, used)
			}
		}

		if room, ok := rooms[relative]; ok {
			for _, imported := range p.Imports {
				if why := room.refuses(imported); why != "" {
					t.Errorf("%s imports %s: %s", relative, imported, why)
				}
			}
		}

		allowed, isPure := pure[relative]
		for _, imported := range p.Imports {
			ioOrForeign := imported == "net" || imported == "os" || strings.Contains(imported, ".")
			named := slices.ContainsFunc(allowed, func(name string) bool {
				return imported == name || name == jsonV2 && below(imported, jsonV2)
			})
			if isPure && ioOrForeign && !named {
				t.Errorf("%s imports %s: it is pure", relative, imported)
			}
		}
	}
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T, flags ...string) []listed {
	t.Helper()
	cmd := exec.Command("go",
		append(append([]string{"list", "-json=ImportPath,Imports"}, flags...), module+"/...")...)
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}

	var all []listed
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}

		all = append(all, p)
	}
	if len(all) == 0 {
		t.Fatal("no packages were listed")
	}

	return all
}
