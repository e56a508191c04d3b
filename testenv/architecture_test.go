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
	trail      = module + "/subjects/trail"
)

// shared may be imported by every package that knows queues, with or without a store.
var shared = []string{settings, schedule, strictJSON, trail}

// pure packages do no I/O. The list of each has all that it may import beside the standard library.
var pure = map[string][]string{
	"subjects":            {settings, schedule, strictJSON, trail, jsonV2},
	"subjects/settings":   {strictJSON},
	"subjects/schedule":   {strictJSON, "github.com/netresearch/go-cron"},
	"subjects/strictjson": {jsonV2},
	"subjects/trail":      {settings, strictJSON},
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

// promises say why a package, named relative to the module, must not import another, "" if it may.
var promises = map[string]func(name, imported string) (why string){
	"only named packages know NATS, an engine, the wire or test code": func(
		name, imported string,
	) string {
		if slices.Contains(shared, imported) {
			return ""
		}
		for _, rule := range rules {
			mayImport := func(by string) bool { return below(name, by) }
			applies := below(imported, rule.imported) && !below(module+"/"+name, rule.imported)
			if applies && !slices.ContainsFunc(rule.by, mayImport) {
				return rule.why
			}
		}
		return ""
	},
	"engines do not know what is stored in them": func(name, imported string) string {
		stored := imported == module+"/fdbpq" || below(imported, module+"/fdbpq/internal")
		if below(name, "fdbpq/kv") && stored {
			return "engines do not know what is stored in them"
		}
		return ""
	},
	"arrows between the rooms of the queues go down": func(name, imported string) string {
		used := strings.TrimPrefix(imported, module+"/")
		_, isRoom := queueRooms[used]
		const reader = "fdbpq/fdbpqtest" // of everything that is stored
		ofQueues := below(name, "fdbpq") && !below(name, reader)
		if isRoom && ofQueues && !slices.Contains(queueRooms[name], used) {
			return "arrows between the rooms of the queues go down"
		}
		return ""
	},
	"arrows between the rooms of the bridge go down": func(name, imported string) string {
		room, isRoom := rooms[name]
		used := strings.TrimPrefix(imported, module+"/")
		switch {
		case !isRoom:
			return ""
		case below(imported, module+"/bridge") && !slices.Contains(room.uses, used):
			return "arrows between the rooms of the bridge go down"
		case below(imported, "github.com/nats-io") && !room.nats:
			return "it does not know NATS"
		case below(imported, "github.com/prometheus") && !room.metrics:
			return "the bridge counts, not its rooms"
		}
		return ""
	},
	"pure packages do no I/O": func(name, imported string) string {
		allowed, isPure := pure[name]
		named := func(by string) bool {
			return imported == by || by == jsonV2 && below(imported, by)
		}
		ioOrForeign := imported == "net" || imported == "os" || strings.Contains(imported, ".")
		if isPure && ioOrForeign && !slices.ContainsFunc(allowed, named) {
			return "it is pure"
		}
		return ""
	},
}

// Packages import only what the design allows.
func TestArchitecture(t *testing.T) {
	all := packages(t, "-tags", "fdb")
	for promise, refuses := range promises {
		t.Run(promise, func(t *testing.T) {
			for _, p := range all {
				name := strings.TrimPrefix(p.ImportPath, module+"/")
				for _, imported := range p.Imports {
					if why := refuses(name, imported); why != "" {
						t.Errorf("%s imports %s: %s", name, imported, why)
					}
				}
			}
		})
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
