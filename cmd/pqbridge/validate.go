package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxPrefixLength keeps subjects below what NATS servers take by default, and keys below
// what FoundationDB takes.
const maxPrefixLength = 1024

// validate returns everything that is wrong with the values, joined. Files are checked
// by checkFiles.
func (c *config) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	oneOf := func(name, value, a, b string) {
		check(value == a || value == b, "%s is %q: want %s or %s", name, value, a, b)
	}

	oneOf("PQ_STORE", c.Store, storeEmbedded, storeFDB)
	oneOf("PQ_VALUE_FORMAT", c.ValueFormat, "raw", "tuple")
	oneOf("PQ_LOG_FORMAT", c.LogFormat, "text", "json")
	check(c.NATSURL != "", "PQ_NATS_URL is empty: want the URL of a NATS server")
	problems = append(problems, c.NATS.validate(), c.Leaf.validate())
	check(c.LeafURL != "" || c.Leaf == access{prefix: leafPrefix}, "PQ_JETSTREAM_LEAF_URL is empty, and other variables of %s* are set: want it too, or none", leafPrefix)
	check(c.QueueGroup != "", "PQ_QUEUE_GROUP is empty: leave it unset for the default")
	check(c.DataDir != "" || c.Store != storeEmbedded, "PQ_DATA_DIR is empty: want the folder of the embedded store")
	check(c.HTTPAddr == httpOff || isHostPort(c.HTTPAddr), "PQ_HTTP_ADDR is %q: want host:port or %s", c.HTTPAddr, httpOff)
	check(net.ParseIP(c.DevNATSHost) != nil, "PQ_DEV_NATS_HOST is %q: want an IP address such as 127.0.0.1 or 0.0.0.0", c.DevNATSHost)
	check(c.DevNATSPort >= 0 && c.DevNATSPort <= 65535, "PQ_DEV_NATS_PORT is %d: want 0 to 65535", c.DevNATSPort)

	for _, text := range []struct{ name, value string }{
		{"PQ_KEY_PREFIX", c.KeyPrefix},
		{"PQ_FIFO_KEY_PREFIX", c.FIFOKeyPrefix},
		{"PQ_DATA_DIR", c.DataDir},
	} {
		check(text.value == "" || strings.TrimSpace(text.value) != "", "%s is blank: want a value, or leave it unset", text.name)
	}

	for _, prefix := range []struct{ name, value string }{
		{"PQ_SUBJECT_PREFIX", c.SubjectPrefix},
		{"PQ_FIFO_PREFIX", c.FIFOPrefix},
		{"PQ_KEY_PREFIX", c.KeyPrefix},
		{"PQ_FIFO_KEY_PREFIX", c.FIFOKeyPrefix},
	} {
		check(len(prefix.value) <= maxPrefixLength, "%s has %d bytes: want at most %d", prefix.name, len(prefix.value), maxPrefixLength)
	}

	_, err := subjects.New(c.SubjectPrefix, c.FIFOPrefix)
	check(err == nil, "PQ_SUBJECT_PREFIX and PQ_FIFO_PREFIX: %w", err)
	check(c.LeafURL == "" || c.prefixesAreDomains(),
		"PQ_SUBJECT_PREFIX or PQ_FIFO_PREFIX has a dot: with PQ_JETSTREAM_LEAF_URL they name JetStream domains, which have none")
	_, err = c.keyspace()
	problems = append(problems, c.validateZeros(), err, c.validateOptions())
	return errors.Join(problems...)
}

// prefixesAreDomains reports whether the subject prefixes can be JetStream domains, which have no
// dots.
func (c *config) prefixesAreDomains() bool {
	return !strings.Contains(c.SubjectPrefix+c.FIFOPrefix, ".")
}

// isHostPort reports whether addr is a host, which may be empty, and a port.
func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" || strings.ContainsAny(host, " \t\r\n/") {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}

// validateZeros returns an error for each variable that is 0. The packages below take
// that for their default, but nobody who sets it means that.
func (c *config) validateZeros() error {
	var problems []error
	defaults := variables()
	for i, v := range c.variables() {
		if v.option != "" && v.value.CanInt() && v.value.IsZero() && !defaults[i].value.IsZero() {
			problems = append(problems, fmt.Errorf("%s is 0: leave it unset for the default", v.name))
		}
	}
	return errors.Join(problems...)
}

// validateOptions returns what the packages that get the values have against them.
func (c *config) validateOptions() error {
	var problems []error
	all := errors.Join(c.bridgeOptions().Validate(), c.pebbleOptions(nil).Validate(), c.fdbOptions().Validate())
	for _, err := range unjoined(all) {
		if wrong, ok := errors.AsType[*kv.OptionError](err); ok && notConfigured[optionOf(wrong)] {
			continue
		}
		problems = append(problems, err)
	}
	return inVariables(errors.Join(problems...))
}

// notConfigured are the required options that serve fills in later.
var notConfigured = map[string]bool{"bridge.DB": true, "bridge.Keyspace": true, "bridge.Grammar": true}

func optionOf(err *kv.OptionError) string { return err.Package + "." + err.Field }

// inVariables returns err with the names of variables in place of those of options.
func inVariables(err error) error {
	var all []error
	for _, err := range unjoined(err) {
		if wrong, ok := errors.AsType[*kv.OptionError](err); ok {
			for _, v := range variables() {
				if v.option == optionOf(wrong) {
					err = fmt.Errorf("%s is %v: want %s", v.name, wrong.Value, wrong.Want)
				}
			}
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// unjoined returns the errors that errors.Join joined, or err alone.
func unjoined(err error) (all []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, err := range joined.Unwrap() {
		all = append(all, unjoined(err)...)
	}
	return all
}

// validateDev returns an error for each variable about the client connection to NATS, if -dev starts
// a server of its own. The leaf node connection may lead elsewhere.
func validateDev(dev bool) error {
	if !dev {
		return nil
	}
	var problems []error
	for _, v := range variables() {
		if _, set := os.LookupEnv(v.name); set && strings.HasPrefix(v.name, natsPrefix) {
			problems = append(problems, fmt.Errorf("%s has no use with -dev, which starts a NATS server of its own: unset it, or leave out -dev", v.name))
		}
	}
	return errors.Join(problems...)
}
