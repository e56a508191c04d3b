package deploy

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
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
serviceMonitor: {enabled: true, labels: {release: prometheus}}
networkPolicy:
  enabled: true
  httpFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
prometheusRule: {enabled: true, labels: {release: prometheus}}
`,
	"jetstream": `
jetstream:
  leafURL: nats-leaf://nats:7422
  user: {secretName: nats-leaf}
networkPolicy: {enabled: true}
`,
	"jetstream-all": `
nats: {nkey: {secretName: nats-nkey}}
jetstream:
  leafURL: nats-leaf://nats-0.nats:7500,nats-leaf://nats-1.nats:7500
  credentials: {secretName: leaf-login, key: leaf.creds}
  tls: {ca: {secretName: leaf-tls, key: ca.crt}, client: {secretName: leaf-client}}
networkPolicy: {enabled: true, leafPorts: [7500]}
`,
	"backup": `backup: {enabled: true}`,
	"backup-all": `
fullnameOverride: queues-with-a-name-as-long-as-the-chart-allows-it-xx
image: {tag: "1.2.3"}
imagePullSecrets: [{name: registry}]
tolerations: [{key: dedicated, operator: Equal, value: queues, effect: NoSchedule}]
backup:
  enabled: true
  schedule: "@daily"
  timeZone: Europe/Berlin
  keep: 30
  existingClaim: backups
  resources: {limits: {memory: 256Mi}}
`,
	"fdb": `
store: fdb
fdb: {clusterFile: {configMap: fdb-config}}
nats: {user: {secretName: nats-login}}
`,
	"fdb-all": `
store: fdb
fdb:
  replicas: 3
  clusterFile: {configMap: fdb-config, key: file}
  copyImage: "registry.example.com/busybox:1"
nats: {nkey: {secretName: nats-nkey}}
networkPolicy: {enabled: true}
podDisruptionBudget: {enabled: false}
serviceMonitor: {enabled: true}
topologySpreadConstraints:
- {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule}
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

// Helm reads from the package that a release has what it reads from the folder.
func TestChartPackage(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("Python is not installed here")
	}

	dist := t.TempDir()
	folder := filepath.Join(dist, "pqbridge_1.2.3_linux_amd64")
	deploy := os.DirFS(filepath.Join(root, "deploy"))
	must(t, os.CopyFS(filepath.Join(folder, "deploy"), deploy))
	must(t, os.Mkdir(filepath.Join(folder, "bin"), 0o700))
	for _, name := range []string{"bin/pqbridge", "bin/pq", "LICENSE", "THIRD-PARTY-LICENSES"} {
		must(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	pack := exec.CommandContext(t.Context(), filepath.Join(root, ".ci", "pack"), dist, "1.2.3")
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf(".ci/pack: %v\n%s", err, out)
	}

	read := func(path string) map[string]string {
		chart, err := loader.Load(path)
		must(t, err)
		files := map[string]string{}
		for _, file := range chart.Raw {
			files[file.Name] = string(file.Data)
		}
		return files
	}
	got, want := read(filepath.Join(dist, "pqbridge-1.2.3.tgz")), read(chartPath)
	if len(want) < 15 || !maps.Equal(got, want) {
		t.Errorf("the package has %q, and the folder %q, or their text differs",
			slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

// render does what helm template does. Each object begins with a line "---".
func render(t *testing.T, values string) (string, error) {
	t.Helper()
	chart, err := loader.Load(chartPath)
	must(t, err)
	var given map[string]any
	must(t, yaml.UnmarshalStrict([]byte(values), &given))

	all, err := chartutil.ToRenderValues(chart, given,
		chartutil.ReleaseOptions{Name: "pqbridge", Namespace: "queues"}, nil)
	if err != nil {
		return "", err
	}

	rendered, err := engine.Render(chart, all)
	if err != nil {
		return "", err
	}

	var text strings.Builder
	for _, path := range slices.Sorted(maps.Keys(rendered)) {
		object := strings.TrimSpace(rendered[path])
		if filepath.Ext(path) == ".yaml" && object != "" {
			text.WriteString("---\n" + object + "\n")
		}
	}

	return text.String(), nil
}

// specOfRules returns the alerts as the chart has them. Golden files leave them out, because they
// would be a second copy.
func specOfRules(t *testing.T) string {
	rules := strings.TrimSpace(string(read(t, root, "deploy", "prometheus", "rules.yaml")))
	return "spec:\n  " + strings.ReplaceAll(rules, "\n", "\n  ")
}

// The chart renders valid objects for every set of values, the same as last time.
func TestChartRenders(t *testing.T) {
	for name, values := range charts {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, values)
			must(t, err)
			golden(t, name+".yaml", strings.Replace(text, specOfRules(t),
				"spec: # as in deploy/prometheus/rules.yaml", 1))

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

// Pods have a disruption budget if there are several of them, unless it is turned off.
func TestChartBudgets(t *testing.T) {
	const fdb = "store: fdb\nfdb: {clusterFile: {configMap: fdb-config}, replicas: %d}\n"
	for values, want := range map[string]bool{
		"":                  false,
		fmt.Sprintf(fdb, 1): false,
		fmt.Sprintf(fdb, 2): true,
		fmt.Sprintf(fdb, 2) + "podDisruptionBudget: {enabled: false}": false,
	} {
		text, err := render(t, values)
		must(t, err)

		if got := decode(t, text).budget != nil; got != want {
			t.Errorf("%q: a budget: %v, want %v", values, got, want)
		}
	}
}

// Values that would not work are refused, with an error that names them.
func TestChartRefuses(t *testing.T) {
	for _, test := range []struct{ values, want string }{
		{`sotre: fdb`, "sotre"},
		{`store: memory`, "store"},
		{`store: fdb`, "fdb.clusterFile.configMap"},
		{`nats: {credentials: {secretName: a}, token: {secretName: b}}`, "nats.credentials and " +
			"nats.token are set"},
		{`config: {PQ_DATA_DIR: /elsewhere}`, "config.PQ_DATA_DIR: the chart sets this variable " +
			"itself"},
		{
			`config: {PQ_JETSTREAM_LEAF_URL: "nats-leaf://nats:7422"}`,
			"config.PQ_JETSTREAM_LEAF_URL: the chart sets this variable itself",
		},
		{`jetstream: {nkey: {secretName: a}, user: {secretName: b}}`, "jetstream.nkey and " +
			"jetstream.user are set"},
		{`backup: {enabled: true, keep: 0}`, "keep"},
		{
			`{store: fdb, fdb: {clusterFile: {configMap: a}}, backup: {enabled: true}}`,
			"backup.enabled is for the embedded store",
		},
		{
			`{embedded: {persistence: {accessModes: [ReadWriteOncePod]}}, backup: {enabled: true}}`,
			"cannot be ReadWriteOncePod",
		},
		{`config: {LOG_LEVEL: debug}`, "LOG_LEVEL"},
		{`config: {PQ_STROE: fdb}`, "PQ_STROE"},
		{`config: {PQ_MAX_BATCH: 10}`, "PQ_MAX_BATCH"},
		{`embedded: {persistence: {accessModes: [ReadWriteMany]}}`, "accessModes"},
		{`probes: {startup: {path: /healthz}}`, "path"},
		{`dashboard: {enabled: true}`, "dashboard.token.secretName or dashboard.trustProxyUser"},
		{
			`dashboard: {enabled: true, token: {secretName: a}, trustProxyUser: X-User}`,
			"dashboard.token.secretName or dashboard.trustProxyUser",
		},
		{
			`dashboard: {enabled: true, trustProxyUser: X-User, ` +
				`nats: {nkey: {secretName: a}, user: {secretName: b}}}`,
			"dashboard.nats.nkey and dashboard.nats.user are set",
		},
		{`dashboard: {trustProxyUser: "X-User --listen"}`, "trustProxyUser"},
		{`dashboard: {hosts: ["https://queues.example.com"]}`, "hosts"},
		{`dashboard: {token: "secret"}`, "token"},
	} {
		text, err := render(t, test.values)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, and %d bytes: want an error with %q",
				test.values, err, len(text), test.want)
		}
	}
}

// The chart renders with each block of values in docs/kubernetes.md, and with each --set.
func TestDocumentedValues(t *testing.T) {
	text := string(read(t, root, "docs", "kubernetes.md"))
	var all []string
	yamlBlock := regexp.MustCompile("(?s)```yaml\n(.*?)```")

	for _, block := range yamlBlock.FindAllStringSubmatch(text, -1) {
		all = append(all, block[1])
	}

	helm, unfolded := regexp.MustCompile(`(?m)^ +helm .*$`), strings.ReplaceAll(text, "\\\n", " ")
	for _, line := range helm.FindAllString(unfolded, -1) {
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
