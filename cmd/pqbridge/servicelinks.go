package main

import (
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// links match the variables that Kubernetes sets in every container for each service of
// the namespace. NAME is the service's name in capitals, with '_' for '-':
//
//	NAME_SERVICE_HOST=10.0.0.1
//	NAME_SERVICE_PORT=4222                        and the same with _<name of the port>
//	NAME_PORT=tcp://10.0.0.1:4222
//	NAME_PORT_4222_TCP=tcp://10.0.0.1:4222        for each port
//	NAME_PORT_4222_TCP_PROTO=tcp
//	NAME_PORT_4222_TCP_PORT=4222
//	NAME_PORT_4222_TCP_ADDR=10.0.0.1
//
// For a service called pq or pq-something they begin with PQ_. Matching the values too
// keeps a misspelt variable of ours from passing for one of them.
var links = []struct {
	name  *regexp.Regexp
	value func(string) bool
}{
	{regexp.MustCompile(`^PQ_(?:\w+_)?PORT_\d+_(?:TCP|UDP|SCTP)_PROTO$`), isProtocol},
	{regexp.MustCompile(`^PQ_(?:\w+_)?PORT_\d+_(?:TCP|UDP|SCTP)_PORT$`), isPort},
	{regexp.MustCompile(`^PQ_(?:\w+_)?PORT_\d+_(?:TCP|UDP|SCTP)_ADDR$`), isAddress},
	{regexp.MustCompile(`^PQ_(?:\w+_)?PORT(?:_\d+_(?:TCP|UDP|SCTP))?$`), isAddressURL},
	{regexp.MustCompile(`^PQ_(?:\w+_)?SERVICE_HOST$`), isAddress},
	{regexp.MustCompile(`^PQ_(?:\w+_)?SERVICE_PORT(?:_\w+)?$`), isPort},
}

func isProtocol(text string) bool { return text == "tcp" || text == "udp" || text == "sctp" }

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

func isAddress(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func isAddressURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && isProtocol(u.Scheme) && isAddress(u.Hostname()) && isPort(u.Port())
}

// isServiceLink reports whether Kubernetes has set the variable. It can be one of ours:
// PQ_DEV_NATS_PORT, if there is a service called pq-dev-nats. It then counts as unset.
func isServiceLink(name, value string) bool {
	for _, link := range links {
		if link.name.MatchString(name) && link.value(value) {
			return true
		}
	}
	return false
}

// serviceLinks returns the names of the variables that Kubernetes has set.
func serviceLinks(environ []string) []string {
	var names []string
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); isServiceLink(name, value) {
			names = append(names, name)
		}
	}
	return names
}
