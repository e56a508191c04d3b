package deploy

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// serviceMonitor is the part of the Prometheus operator's type that the chart uses.
type serviceMonitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector  meta.LabelSelector
		Endpoints []struct{ Port, Path, Interval, ScrapeTimeout string }
	}
}

// prometheusRule is the Prometheus operator's type. TestRules checks the groups.
type prometheusRule struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct{ Groups []any }
}

// objects has the objects of one release.
type objects struct {
	stateful *apps.StatefulSet
	deployed *apps.Deployment
	service  *core.Service
	budget   *policy.PodDisruptionBudget
	network  *networking.NetworkPolicy
	monitor  *serviceMonitor
	rules    *prometheusRule
	backup   *batch.CronJob
	claim    *core.PersistentVolumeClaim

	dashboard *objects // those whose names end so, nil if there are none
}

// decode reads objects as strictly as an API server that validates fields: a misspelt one fails the
// test.
func decode(t *testing.T, text string) objects {
	t.Helper()
	var all objects
	for _, object := range strings.Split(text, "---\n")[1:] {
		var kind struct {
			meta.TypeMeta   `json:",inline"`
			meta.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(object), &kind); err != nil {
			t.Fatalf("%v in\n%s", err, object)
		}

		of := &all
		if strings.HasSuffix(kind.Name, "-dashboard") {
			all.dashboard = cmp.Or(all.dashboard, &objects{})
			of = all.dashboard
		}

		into := map[string]any{
			"apps/v1 StatefulSet":                     &of.stateful,
			"apps/v1 Deployment":                      &of.deployed,
			"v1 Service":                              &of.service,
			"policy/v1 PodDisruptionBudget":           &of.budget,
			"networking.k8s.io/v1 NetworkPolicy":      &of.network,
			"monitoring.coreos.com/v1 ServiceMonitor": &of.monitor,
			"monitoring.coreos.com/v1 PrometheusRule": &of.rules,
			"batch/v1 CronJob":                        &of.backup,
			"v1 PersistentVolumeClaim":                &of.claim,
		}[kind.APIVersion+" "+kind.Kind]
		if into == nil {
			t.Fatalf("%v: want a kind that this test knows", kind)
		}

		if err := yaml.UnmarshalStrict([]byte(object), into); err != nil {
			t.Fatalf("%v in\n%s", err, object)
		}
	}

	return all
}

// checkObjects checks what the types of the objects cannot.
func checkObjects(t *testing.T, text string) {
	t.Helper()
	all := decode(t, text)
	var pod core.PodTemplateSpec
	var selector *meta.LabelSelector
	var mounted []string // what volumes there are

	switch {
	case all.stateful != nil && all.deployed == nil:
		pod, selector = all.stateful.Spec.Template, all.stateful.Spec.Selector
		if *all.stateful.Spec.Replicas != 1 || all.stateful.Spec.ServiceName != all.service.Name {
			t.Errorf("StatefulSet %+v: want one replica, and service %s",
				all.stateful.Spec, all.service.Name)
		}

		for _, claim := range all.stateful.Spec.VolumeClaimTemplates {
			mounted = append(mounted, claim.Name)
		}
	case all.deployed != nil && all.stateful == nil:
		pod, selector = all.deployed.Spec.Template, all.deployed.Spec.Selector
		for _, constraint := range pod.Spec.TopologySpreadConstraints {
			wantSelects(t, "spread", constraint.LabelSelector.MatchLabels, pod.Labels)
		}
		if len(pod.Spec.TopologySpreadConstraints) == 0 {
			t.Error("pods are not spread")
		}
	default:
		t.Fatal("want either a StatefulSet or a Deployment")
	}
	wantSelects(t, "workload", selector.MatchLabels, pod.Labels)
	wantSelects(t, "service", all.service.Spec.Selector, pod.Labels)
	if all.budget != nil {
		wantSelects(t, "budget", all.budget.Spec.Selector.MatchLabels, pod.Labels)
	}
	if all.network != nil {
		wantSelects(t, "network", all.network.Spec.PodSelector.MatchLabels, pod.Labels)
	}
	if all.monitor != nil {
		wantSelects(t, "monitor", all.monitor.Spec.Selector.MatchLabels, all.service.Labels)
		if port := all.monitor.Spec.Endpoints[0].Port; port != all.service.Spec.Ports[0].Name {
			t.Errorf("port %s is monitored, which the service does not have", port)
		}
	}

	for _, volume := range pod.Spec.Volumes {
		mounted = append(mounted, volume.Name)
	}
	checkPod(t, pod.Spec, mounted)
	checkProbes(t, pod.Spec.Containers[0],
		map[string]string{"startup": "/readyz", "liveness": "/healthz", "readiness": "/readyz"})

	// What docs/install.md says that the service takes, with its defaults.
	if limit := pod.Spec.Containers[0].Resources.Limits.Memory().Value(); limit < 448<<20 {
		t.Errorf("memory limit %d: want more than 448 MiB", limit)
	}
	if all.rules != nil && len(all.rules.Spec.Groups) == 0 {
		t.Error("the PrometheusRule has no rules")
	}

	if all.backup != nil {
		checkBackup(t, all, pod)
	}

	if all.dashboard != nil {
		checkDashboard(t, *all.dashboard, pod)
	}
}

// checkBackup checks the CronJob of the backups. Its pod asks the service through the socket in the
// service's folder, so it is on the same node, as the same user, with the service's volume, which
// it only reads. The service writes, and the pod removes, so both have the volume of the backups in
// one place.
func checkBackup(t *testing.T, all objects, bridge core.PodTemplateSpec) {
	t.Helper()
	template := all.backup.Spec.JobTemplate.Spec.Template
	pod, container, service := template.Spec, template.Spec.Containers[0], bridge.Spec.Containers[0]
	checkPod(t, pod, []string{"backup", "data"})

	near := pod.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(near) != 1 || near[0].TopologyKey != "kubernetes.io/hostname" {
		t.Fatalf("affinity %v: want the node of the service", near)
	}
	wantSelects(t, "affinity", near[0].LabelSelector.MatchLabels, bridge.Labels)

	if name := "app.kubernetes.io/name"; template.Labels[name] == bridge.Labels[name] {
		t.Errorf("the service of the bridges selects the backup: both are %s",
			template.Labels[name])
	}
	if len(all.backup.Name) > 52 || container.Image != service.Image ||
		pod.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("CronJob %s with image %s: want at most 52 characters, and %s",
			all.backup.Name, container.Image, service.Image)
	}

	if !slices.Equal(container.Args[:3], []string{"-backup", "/backup", "-keep"}) {
		t.Errorf("it runs %q", container.Args)
	}

	variable := func(c core.Container, name string) string {
		i := slices.IndexFunc(c.Env, func(v core.EnvVar) bool { return v.Name == name })
		return c.Env[i].Value
	}

	for _, name := range []string{"PQ_STORE", "PQ_DATA_DIR"} {
		if got, want := variable(container, name), variable(service, name); got != want {
			t.Errorf("%s is %s, and %s in the service", name, got, want)
		}
	}
	if user := *pod.SecurityContext.RunAsUser; user != *bridge.Spec.SecurityContext.RunAsUser {
		t.Errorf("it runs as user %d", user)
	}

	claims := func(pod core.PodSpec, in core.Container) map[string]string {
		found := map[string]string{}
		for _, mount := range in.VolumeMounts {
			for _, volume := range pod.Volumes {
				if volume.Name == mount.Name && volume.PersistentVolumeClaim != nil {
					found[mount.MountPath] = volume.PersistentVolumeClaim.ClaimName
				}
			}
		}

		return found
	}

	got, want := claims(pod, container), claims(bridge.Spec, service)
	want["/data"] = all.stateful.Spec.VolumeClaimTemplates[0].Name + "-" + all.stateful.Name + "-0"
	if want["/backup"] == "" || !maps.Equal(got, want) {
		t.Errorf("volumes %v: want those of the service, %v", got, want)
	}
	if all.claim != nil && all.claim.Name != want["/backup"] {
		t.Errorf("claim %s, and %s is mounted", all.claim.Name, want["/backup"])
	}

	for _, mount := range container.VolumeMounts {
		if readOnly := mount.Name == "data"; mount.ReadOnly != readOnly {
			t.Errorf("%s is mounted with readOnly %v", mount.Name, mount.ReadOnly)
		}
	}
}

// The Job restores to where the chart's service has its store, from where the CronJob makes
// backups, with the same image and user, and moves away the store that is there.
func TestRestoreJob(t *testing.T) {
	var job batch.Job
	must(t, yaml.UnmarshalStrict(read(t, root, "deploy", "kubernetes", "restore.yaml"), &job))
	all := decode(t, string(read(t, "testdata", "backup.yaml")))
	backup := all.backup.Spec.JobTemplate.Spec.Template.Spec

	pod := job.Spec.Template.Spec

	checkPod(t, pod, []string{"backup", "data"})

	restore, replace := pod.InitContainers[0], pod.Containers[0]
	if restore.Image != backup.Containers[0].Image ||
		*pod.SecurityContext.RunAsUser != *backup.SecurityContext.RunAsUser {
		t.Errorf("%s as user %d: want those of the CronJob",
			restore.Image, *pod.SecurityContext.RunAsUser)
	}

	if restore.Args[0] != "-restore" ||
		filepath.Dir(restore.Args[1]) != backup.Containers[0].Args[1] {
		t.Errorf("it runs %q", restore.Args)
	}

	store := backup.Containers[0].Env[1]
	// The store there is replaced once the backup is restored, not before.
	restored := filepath.Join(filepath.Dir(store.Value), "restored")
	if len(restore.Env) != 1 || restore.Env[0].Name != store.Name ||
		restore.Env[0].Value != restored ||
		!strings.HasSuffix(replace.Command[2], "; mv "+restored+" "+store.Value) {
		t.Errorf("variables %v, then %q: want %v", restore.Env, replace.Command, store)
	}

	byName := map[string]string{}
	for _, volume := range slices.Concat(pod.Volumes, backup.Volumes) {
		claim := volume.PersistentVolumeClaim.ClaimName
		if other := byName[volume.Name]; other != "" && other != claim {
			t.Errorf("claim %s is %s in the chart", other, claim)
		}

		byName[volume.Name] = claim
	}
}

// checkDashboard checks the objects of the dashboard beside the pod of a bridge.
func checkDashboard(t *testing.T, all objects, bridge core.PodTemplateSpec) {
	t.Helper()
	pod := all.deployed.Spec.Template
	wantSelects(t, "dashboard", all.deployed.Spec.Selector.MatchLabels, pod.Labels)
	wantSelects(t, "dashboard's service", all.service.Spec.Selector, pod.Labels)
	if all.network != nil {
		wantSelects(t, "dashboard's network", all.network.Spec.PodSelector.MatchLabels, pod.Labels)
	}

	if name := "app.kubernetes.io/name"; pod.Labels[name] == bridge.Labels[name] {
		t.Errorf("the service of the bridges selects the dashboard: both are %s", pod.Labels[name])
	}
	if image := pod.Spec.Containers[0].Image; image != bridge.Spec.Containers[0].Image {
		t.Errorf("image %s: want that of the bridges, %s", image, bridge.Spec.Containers[0].Image)
	}

	var volumes []string
	for _, volume := range pod.Spec.Volumes {
		volumes = append(volumes, volume.Name)
	}
	checkPod(t, pod.Spec, volumes)
	checkProbes(t, pod.Spec.Containers[0],
		map[string]string{"liveness": "/healthz", "readiness": "/readyz"})
}

func checkPod(t *testing.T, pod core.PodSpec, volumes []string) {
	t.Helper()
	if *pod.EnableServiceLinks || *pod.AutomountServiceAccountToken ||
		!*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("pod with service links, token or root: %+v", pod)
	}

	var used []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
			!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
			t.Errorf("%s is not confined: %v", c.Name, s)
		}

		for _, mount := range c.VolumeMounts {
			used = append(used, mount.Name)
		}

		variables := map[string]bool{}
		for _, v := range c.Env {
			if variables[v.Name] {
				t.Errorf("%s: %s is set twice", c.Name, v.Name)
			}
			variables[v.Name] = true
		}
	}

	slices.Sort(used)
	slices.Sort(volumes)
	if used = slices.Compact(used); !slices.Equal(used, volumes) {
		t.Errorf("volumes %v, and %v are mounted", volumes, used)
	}
}

// checkProbes checks that a container has these probes, with their paths. A restart brings neither
// NATS nor the store back, so liveness asks for neither.
func checkProbes(t *testing.T, c core.Container, paths map[string]string) {
	t.Helper()
	for name, probe := range map[string]*core.Probe{
		"startup":   c.StartupProbe,
		"liveness":  c.LivenessProbe,
		"readiness": c.ReadinessProbe,
	} {
		switch want := paths[name]; {
		case probe == nil && want == "":
		case probe == nil || probe.HTTPGet.Path != want ||
			probe.HTTPGet.Port.StrVal != c.Ports[0].Name:
			t.Errorf("%s probe %v: want %q at port %s", name, probe, want, c.Ports[0].Name)
		}
	}
}

func wantSelects(t *testing.T, what string, selector, labels map[string]string) {
	t.Helper()
	if len(selector) == 0 {
		t.Errorf("%s selects everything", what)
	}

	for name, value := range selector {
		if labels[name] != value {
			t.Errorf("%s selects %s=%s, and the labels are %v", what, name, value, labels)
		}
	}
}
