package deploy

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	"sigs.k8s.io/yaml"
)

var chartPath = filepath.Join(root, "deploy", "helm", "pqbridge")

// charts are releases of the chart, by the names of their golden files.
var charts = map[string]string{
	"embedded": ``,
	"embedded-all": `
fullnameOverride: queues
image: {repository: registry.example.com/pqbridge, tag: "1.2.3", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
nats:
  url: tls://nats-0.nats:4222,tls://nats-1.nats:4222
  credentials: {secretName: nats-login, key: bridge.creds}
  tls:
    ca: {secretName: nats-tls, key: ca.crt}
    client: {secretName: nats-client}
embedded:
  persistence: {size: 100Gi, storageClass: fast, accessModes: [ReadWriteOncePod]}
  retention: Delete
config:
  PQ_LOG_LEVEL: debug
  PQ_EMBEDDED_CACHE: "268435456"
  PQ_SHUTDOWN_TIMEOUT: 25s
terminationGracePeriodSeconds: 40
podAnnotations: {example.com/team: queues}
podLabels: {team: queues}
nodeSelector: {disk: local}
tolerations: [{key: dedicated, operator: Equal, value: queues, effect: NoSchedule}]
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [local]}]}]
priorityClassName: system-cluster-critical
podDisruptionBudget: {enabled: false}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
networkPolicy:
  enabled: true
  httpFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
`,
	"fdb": `
store: fdb
fdb: {clusterFile: {configMap: fdb-config}}
nats: {user: {secretName: nats-login}}
`,
	"fdb-all": `
store: fdb
fdb: {replicas: 3, clusterFile: {configMap: fdb-config, key: file}, copyImage: "registry.example.com/busybox:1"}
nats: {nkey: {secretName: nats-nkey}}
networkPolicy: {enabled: true}
serviceMonitor: {enabled: true}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}]
`,
	"token": `nats: {token: {secretName: nats-token}}`,
	"dashboard": `
dashboard: {enabled: true, token: {secretName: dashboard}}
`,
	"dashboard-all": `
image: {tag: "1.2.3"}
imagePullSecrets: [{name: registry}]
nats:
  url: tls://nats:4222
  user: {secretName: nats-login}
  tls: {ca: {secretName: nats-tls, key: ca.crt}, client: {secretName: nats-client}}
dashboard:
  enabled: true
  trustProxyUser: X-Forwarded-User
  hosts: [queues.example.com, queues.internal]
  hideValues: true
  nats: {credentials: {secretName: nats-dashboard}, inboxPrefix: _INBOX_viewer}
  resources: {limits: {memory: 128Mi}}
  nodeSelector: {pool: web}
  tolerations: [{key: dedicated, operator: Equal, value: web, effect: NoSchedule}]
networkPolicy:
  enabled: true
  dashboardFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: proxy}}}]
`,
}

// render does what helm template does. Each object begins with a line "---".
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	chart, err := loader.Load(chartPath)
	must(t, err)
	var given map[string]any
	must(t, yaml.UnmarshalStrict([]byte(values), &given))
	all, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: "pqbridge", Namespace: "queues"}, nil)
	if err != nil {
		return "", err
	}
	rendered, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(rendered)) {
		if object := strings.TrimSpace(rendered[path]); filepath.Ext(path) == ".yaml" && object != "" {
			text.WriteString("---\n" + object + "\n")
		}
	}
	return text.String(), nil
}

func TestChartRenders(t *testing.T) {
	for name, values := range charts {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, values)
			must(t, err)
			golden(t, name+".yaml", text)
			checkObjects(t, text)
			var given map[string]any
			must(t, yaml.UnmarshalStrict([]byte(values), &given))
			for _, m := range lint.All(chartPath, given, "queues", true).Messages {
				if m.Severity > support.InfoSev {
					t.Error(m)
				}
			}
		})
	}
}

// TestChartRefuses gives values that must not be rendered, and what the error has to say.
func TestChartRefuses(t *testing.T) {
	for _, test := range []struct{ values, want string }{
		{`sotre: fdb`, "sotre"},
		{`store: memory`, "store"},
		{`store: fdb`, "fdb.clusterFile.configMap"},
		{`nats: {credentials: {secretName: a}, token: {secretName: b}}`, "nats.credentials and nats.token are set"},
		{`config: {PQ_DATA_DIR: /elsewhere}`, "config.PQ_DATA_DIR: the chart sets this variable itself"},
		{`config: {LOG_LEVEL: debug}`, "LOG_LEVEL"},
		{`config: {PQ_STROE: fdb}`, "PQ_STROE"},
		{`config: {PQ_MAX_BATCH: 10}`, "PQ_MAX_BATCH"},
		{`embedded: {persistence: {accessModes: [ReadWriteMany]}}`, "accessModes"},
		{`probes: {startup: {path: /healthz}}`, "path"},
		{`dashboard: {enabled: true}`, "dashboard.token.secretName or dashboard.trustProxyUser"},
		{`dashboard: {enabled: true, token: {secretName: a}, trustProxyUser: X-User}`, "dashboard.token.secretName or dashboard.trustProxyUser"},
		{`dashboard: {enabled: true, trustProxyUser: X-User, nats: {nkey: {secretName: a}, user: {secretName: b}}}`, "dashboard.nats.nkey and dashboard.nats.user are set"},
		{`dashboard: {trustProxyUser: "X-User --listen"}`, "trustProxyUser"},
		{`dashboard: {hosts: ["https://queues.example.com"]}`, "hosts"},
		{`dashboard: {token: "secret"}`, "token"},
	} {
		if text, err := render(t, test.values); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, and %d bytes: want an error with %q", test.values, err, len(text), test.want)
		}
	}
}

// TestDocumentedValues renders the chart with what docs/kubernetes.md says: each block of values, and each --set.
func TestDocumentedValues(t *testing.T) {
	text := string(read(t, root, "docs", "kubernetes.md"))
	var all []string
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all = append(all, block[1])
	}
	for _, line := range regexp.MustCompile(`(?m)^ +helm .*$`).FindAllString(strings.ReplaceAll(text, "\\\n", " "), -1) {
		given := map[string]any{}
		for _, set := range regexp.MustCompile(`--set (\S+)`).FindAllStringSubmatch(line, -1) {
			must(t, strvals.ParseInto(set[1], given))
		}
		values, err := yaml.Marshal(given)
		must(t, err)
		all = append(all, string(values))
	}
	if len(all) < 6 {
		t.Errorf("%d values: does the test still see them?", len(all))
	}
	for _, values := range all {
		rendered, err := render(t, values)
		if err != nil {
			t.Errorf("%s: %v", values, err)
			continue
		}
		checkObjects(t, rendered)
	}
}
