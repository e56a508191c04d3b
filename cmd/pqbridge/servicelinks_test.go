package main

import (
	"slices"
	"strings"
	"testing"
)

// kubernetesLinks are what the kubelet sets for services pq, pq-nats and pq-dev-nats.
var kubernetesLinks = []string{
	"PQ_SERVICE_HOST=10.43.12.7",
	"PQ_SERVICE_PORT=4222",
	"PQ_SERVICE_PORT_CLIENT=4222",
	"PQ_SERVICE_PORT_HTTP_METRICS=8422",
	"PQ_PORT=tcp://10.43.12.7:4222",
	"PQ_PORT_80_TCP=tcp://10.43.12.7:80",
	"PQ_PORT_80_TCP_PROTO=tcp",
	"PQ_PORT_80_TCP_PORT=80",
	"PQ_PORT_80_TCP_ADDR=10.43.12.7",
	"PQ_PORT_53_UDP=udp://10.43.12.7:53",
	"PQ_PORT_53_UDP_PROTO=udp",
	"PQ_PORT_36412_SCTP=sctp://10.43.12.7:36412",
	"PQ_NATS_SERVICE_HOST=fd00::12",
	"PQ_NATS_SERVICE_PORT=4222",
	"PQ_NATS_PORT=tcp://[fd00::12]:4222",
	"PQ_NATS_PORT_4222_TCP=tcp://[fd00::12]:4222",
	"PQ_NATS_PORT_4222_TCP_ADDR=fd00::12",
	"PQ_DEV_NATS_PORT=tcp://10.43.12.8:4222", // also a variable of ours
	"PQ_DEV_NATS_SERVICE_HOST=10.43.12.8",
}

// TestServiceLinks: variables that Kubernetes sets have no effect and do not keep the
// service from starting.
func TestServiceLinks(t *testing.T) {
	want, err := loadConfig(true)
	must(t, err)
	for _, entry := range kubernetesLinks {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
	got, err := loadConfig(true)
	must(t, err)
	if *got != *want {
		t.Errorf("configuration %+v: want %+v", *got, *want)
	}
	if names := serviceLinks(kubernetesLinks); len(names) != len(kubernetesLinks) {
		t.Errorf("of %d variables %d are taken for links: %v", len(kubernetesLinks), len(names), names)
	}
}

// TestNoServiceLinks: a variable that only resembles one of them is a typo.
func TestNoServiceLinks(t *testing.T) {
	for _, entry := range []string{
		"PQ_DEV_NAT_PORT=4222", "PQ_HTTP_PORT=8422", "PQ_PORT=8422", "PQ_PORT=tcp://nats:4222", "PQ_PORT=nats://10.43.12.7:4222",
		"PQ_SERVICE_HOST=nats.example", "PQ_SERVICE_PORT=99999", "PQ_SERVICE_HOSTS=10.43.12.7", "PQ_SERVICE=10.43.12.7",
		"PQ_PORT_80=tcp://10.43.12.7:80", "PQ_PORT_80_TCP_ADDRESS=10.43.12.7", "PQ_PORT_80_TCP_PROTO=http", "PQ_NATS_URLS=tcp://10.43.12.7:4222",
		"PQ__PORT=", "PQ_=",
	} {
		if names := serviceLinks([]string{entry}); len(names) > 0 {
			t.Errorf("%s is taken for a link", entry)
		}
		if unknownVariables([]string{entry}) == nil {
			t.Errorf("%s is not refused", entry)
		}
	}
}

// TestVariablesThatMayBeLinks lists our variables whose names Kubernetes may set, as
// docs/operations.md does.
func TestVariablesThatMayBeLinks(t *testing.T) {
	var names []string
	for _, v := range variables() {
		for _, link := range links {
			if link.name.MatchString(v.name) {
				names = append(names, v.name)
			}
		}
	}
	if !slices.Equal(names, []string{"PQ_DEV_NATS_PORT"}) {
		t.Errorf("variables with a name that Kubernetes may set: %v", names)
	}
}
