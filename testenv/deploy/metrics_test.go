package deploy

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// scraped are labels that Prometheus adds to whatever it scrapes, here.
var scraped = []string{"job", "instance", "namespace", "pod"}

// knownSeries returns the labels of each series that a bridge exposes. A test of cmd/pqbridge
// compares the file with one that runs.
func knownSeries(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{"up": nil, "ALERTS": {"alertname"}} // Prometheus adds them
	for line := range strings.Lines(string(read(t, "testdata", "metrics.txt"))) {
		fields := strings.Fields(line)
		known[fields[0]] = fields[1:]
	}

	return known
}

// checkQuery checks that an expression of PromQL names only series and labels that exist.
func checkQuery(t *testing.T, known map[string][]string, query string) {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", query, err)
		return
	}

	selectors := 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			selectors++
			if _, ok := known[n.Name]; !ok {
				t.Errorf("%s: there is no series %q", query, n.Name)
			}

			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName {
					checkLabel(t, query, known[n.Name], m.Name)
				}
			}
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				checkLabel(t, query, labelsBelow(known, n.Expr), label)
			}
		}
		return nil
	})
	if selectors == 0 {
		t.Errorf("%s: it reads nothing", query)
	}
}

func checkLabel(t *testing.T, query string, of []string, label string) {
	t.Helper()
	if !slices.Contains(of, label) && !slices.Contains(scraped, label) {
		t.Errorf("%s: there is no label %s, only %v", query, label, of)
	}
}

// labelsBelow returns the labels of all series that an expression reads.
func labelsBelow(known map[string][]string, expr parser.Expr) []string {
	var all []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if n, ok := node.(*parser.VectorSelector); ok {
			all = append(all, known[n.Name]...)
		}
		return nil
	})

	return all
}

// queriesIn finds the queries in the template of a text.
var queriesIn = regexp.MustCompile(`query "(.*?)"`)

// The alerting rules are valid, and ask only for series that a bridge has.
func TestRules(t *testing.T) {
	known := knownSeries(t)
	groups, problems := rulefmt.Parse(read(t, root, "deploy", "prometheus", "rules.yaml"), false,
		model.UTF8Validation)
	for _, problem := range problems {
		t.Error(problem)
	}
	if groups == nil || len(groups.Groups) != 1 || len(groups.Groups[0].Rules) == 0 {
		t.Fatalf("groups %+v: want one with rules", groups)
	}

	for _, rule := range groups.Groups[0].Rules {
		checkQuery(t, known, rule.Expr)

		for _, query := range queriesIn.FindAllStringSubmatch(rule.Annotations["summary"], -1) {
			checkQuery(t, known, query[1])
		}
		if rule.Alert == "" || rule.Annotations["summary"] == "" ||
			!slices.Contains([]string{"warning", "critical"}, rule.Labels["severity"]) {
			t.Errorf("%+v: want an alert with a summary and a severity", rule)
		}
	}
}

// The panels of the dashboard ask only for series that a bridge has.
func TestDashboard(t *testing.T) {
	known := knownSeries(t)
	var dashboard struct { // the part that is checked
		UID, Title string
		Panels     []struct {
			ID          int
			Type, Title string
			Datasource  struct{ UID string }
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}

	text := string(read(t, root, "deploy", "grafana", "pqbridge.json"))
	must(t, json.Unmarshal([]byte(text), &dashboard))
	if dashboard.UID == "" || dashboard.Title == "" || len(dashboard.Panels) == 0 {
		t.Fatalf("no dashboard: %+v", dashboard)
	}

	variables := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$job", "x")
	ids := map[int]bool{}

	for i, p := range dashboard.Panels {
		a := p.GridPos
		if p.Title == "" || ids[p.ID] || a.W == 0 || a.H == 0 || a.X+a.W > 24 {
			t.Errorf("panel %d, %q, at %+v: want a title, an id of its own, and a place",
				p.ID, p.Title, a)
		}

		ids[p.ID] = true
		for _, other := range dashboard.Panels[:i] {
			b := other.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s covers %s", p.Title, other.Title)
			}
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("%s: want queries to the variable datasource", p.Title)
		}

		for _, target := range p.Targets {
			query := variables.Replace(target.Expr)
			if strings.Contains(query, "$") {
				t.Errorf("%s: unknown variable in %s", p.Title, target.Expr)
			}
			checkQuery(t, known, query)
		}
	}

	// What a dashboard has to show.
	for _, name := range []string{
		"pq_queue_oldest_seconds", "pq_requests_total", "pq_request_seconds_bucket",
		"pq_errors_total",
		"pq_batch_requests_sum", "pq_lost_items_total", "pq_dropped_total", "pq_conflicts_total",
		"pq_queue_finished_total", "pq_job_seconds_bucket", "pq_result_waiters",
	} {
		if !strings.Contains(text, name) {
			t.Errorf("%s is not shown", name)
		}
	}
}

// scaledObject is the part of KEDA's type that the examples use.
type scaledObject struct {
	APIVersion, Kind string
	Metadata         struct{ Name string }
	Spec             struct {
		ScaleTargetRef                                                    struct{ Name string }
		MinReplicaCount, MaxReplicaCount, PollingInterval, CooldownPeriod int
		Triggers                                                          []struct {
			Type, MetricType string
			Metadata         map[string]string
		}
	}
}

// scalers has the parameters of KEDA's triggers.
var scalers = map[string][]string{
	"metrics-api": {"activationTargetValue", "targetValue", "url", "valueLocation"},
	"prometheus":  {"activationThreshold", "query", "serverAddress", "threshold"},
}

// KEDA's examples are valid, and ask only for series that a bridge has.
func TestScaledObjects(t *testing.T) {
	known := knownSeries(t)
	for name, parameters := range scalers {
		var object scaledObject
		must(t, yaml.UnmarshalStrict(read(t, root, "deploy", "keda", name+".yaml"), &object))
		if object.APIVersion != "keda.sh/v1alpha1" || object.Kind != "ScaledObject" ||
			len(object.Spec.Triggers) != 1 {
			t.Fatalf("%s: %+v: want a ScaledObject with one trigger", name, object)
		}

		trigger := object.Spec.Triggers[0]
		if trigger.Type != name || trigger.MetricType != "AverageValue" {
			t.Errorf("%s: trigger %+v", name, trigger)
		}

		if got := slices.Sorted(maps.Keys(trigger.Metadata)); !slices.Equal(got, parameters) {
			t.Errorf("%s: the trigger has %v, want %v", name, got, parameters)
		}

		if name == "prometheus" {
			checkQuery(t, known, trigger.Metadata["query"])
			if !strings.HasPrefix(trigger.Metadata["query"], "max(") {
				t.Errorf("%s: all bridges show the same figures: want the maximum",
					trigger.Metadata["query"])
			}
		}

		// The chart's service, in the namespace that it is installed to without further ado.
		if url := trigger.Metadata["url"]; name == "metrics-api" {
			all := decode(t, string(read(t, "testdata", "embedded.yaml")))
			want := "http://" + all.service.Name + ".default.svc.cluster.local:8422/queues/"
			if !strings.HasPrefix(url, want) {
				t.Errorf("url %s: want %s...", url, want)
			}
		}
	}

	files, err := filepath.Glob(filepath.Join(root, "deploy", "keda", "*"))
	if err != nil || len(files) != len(scalers) {
		t.Errorf("files %v, %v: want one for each of %v", files, err, scalers)
	}
}
