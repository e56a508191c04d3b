package login

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
)

// stored is a context of the nats command line tool: a file that says how to reach a server and how
// to log in. docs/decisions says why pq reads it itself.
type stored struct {
	URL         string `json:"url"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	Creds       string `json:"creds"`
	NKey        string `json:"nkey"`
	UserJWT     string `json:"user_jwt"`
	UserSeed    string `json:"user_seed"`
	CA          string `json:"ca"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	InboxPrefix string `json:"inbox_prefix"`
	TLSFirst    bool   `json:"tls_first"`

	// pq refuses contexts with these.
	NSC          string `json:"nsc"`
	SocksProxy   string `json:"socks_proxy"`
	WinCertStore string `json:"windows_cert_store"`
}

// configDir is where the nats tool keeps contexts.
func configDir() (string, error) {
	if dir := os.Getenv("XDG_CONFIG_HOME"); dir != "" {
		return filepath.Join(dir, "nats"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".config", "nats"), err
}

// loadContext reads the context of that name, or the one that nats context select has selected. It
// returns nil if the name is "" and none is selected.
func loadContext(name string) (*stored, error) {
	dir, err := configDir()
	if err != nil && name == "" {
		return nil, nil // without a home nothing is selected
	} else if err != nil {
		return nil, fmt.Errorf("context %s: %w", name, err)
	}

	isSelected := name == ""
	if isSelected {
		selected, err := os.ReadFile(filepath.Join(dir, "context.txt"))
		name = strings.TrimSpace(string(selected))
		if err != nil || name == "" {
			return nil, nil
		}
	}

	if strings.ContainsAny(name, `/\`) || strings.Contains(name, "..") {
		return nil, fmt.Errorf("context %q: that is no name of a context", name)
	}

	file := filepath.Join(dir, "context", name+".json")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && isSelected {
		return nil, fmt.Errorf("the context %s is selected, but it was deleted "+
			"(there is no file %s): select another with nats context select, "+
			"or name one with --context", name, file)
	}

	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no context %s, because there is no file %s: "+
			"nats context ls lists those that are there", name, file)
	}

	c := &stored{}
	if err == nil && json.Unmarshal(text, c) != nil {
		err = fmt.Errorf("the file %s is no JSON object of texts: "+
			"save the context again with nats context save", file)
	}

	if err == nil {
		err = c.check()
	}

	if err != nil {
		return nil, fmt.Errorf("context %s: %w", name, err)
	}

	for _, path := range []*string{&c.Creds, &c.NKey, &c.CA, &c.Cert, &c.Key} {
		*path = expandPath(*path)
	}

	return c, nil
}

// check returns what pq cannot do.
func (c *stored) check() error {
	for field, value := range map[string]string{
		"nsc": c.NSC, "socks_proxy": c.SocksProxy, "windows_cert_store": c.WinCertStore,
	} {
		if value != "" {
			return fmt.Errorf("pq does not know %s: use a context without, "+
				"such as one with the creds that nsc generate creds prints", field)
		}
	}

	if (c.Cert == "") != (c.Key == "") {
		return errors.New("cert and key go together")
	}

	return nil
}

// expandPath replaces a ~ in front, and variables, as the nats tool does. It leaves references
// alone.
func expandPath(path string) string {
	path = strings.TrimPrefix(path, "file://")
	if scheme(path) != "" || path == "" {
		return path
	}
	rest, found := strings.CutPrefix(path, "~")
	if found && (rest == "" || os.IsPathSeparator(rest[0])) {
		if home, err := os.UserHomeDir(); err == nil {
			path = home + rest
		}
	}
	return os.ExpandEnv(path)
}

// scheme returns the scheme of a reference to a secret, "" for what is a secret or a file itself.
func scheme(text string) string {
	before, _, found := strings.Cut(text, ":")
	before = strings.ToLower(before)
	if found && slices.Contains([]string{"file", "env", "data", "op", "nsc"}, before) {
		return before
	}
	return ""
}

// secret returns the secret that a text is, or refers to.
func secret(field, text string) (string, error) {
	var value []byte
	var err error

	_, rest, _ := strings.Cut(text, ":")
	switch name := strings.TrimPrefix(rest, "//"); scheme(text) {
	case "":
		return text, nil
	case "file":
		value, err = os.ReadFile(expandPath(name))
	case "env":
		if value = []byte(os.Getenv(name)); len(value) == 0 {
			err = fmt.Errorf("the variable %s is not set", name)
		}
	case "data":
		kind, data, _ := strings.Cut(rest, ",")
		if strings.HasSuffix(kind, ";base64") {
			value, err = base64.StdEncoding.DecodeString(data)
		} else {
			data, err = url.PathUnescape(data)
			value = []byte(data)
		}
	default:
		err = errors.New("pq does not run op or nsc: " +
			"put the secret into a file or a variable, and name that")
	}

	if err != nil {
		return "", fmt.Errorf("%s of the context: %w", field, err)
	}

	return strings.TrimRight(string(value), "\r\n"), nil
}

// useContext takes from a context what no flag and no variable says. If any of them says who logs
// in, the context does not.
func (c *Connection) useContext(set *pflag.FlagSet) error {
	from, err := loadContext(c.context)
	if err != nil || from == nil {
		return err
	}

	take := func(flag string, field *string, value string) {
		if !set.Changed(flag) && value != "" {
			*field = value
		}
	}

	take("server", &c.Server, from.URL)
	take("tlsca", &c.tlsCA, from.CA)
	if !set.Changed("tlscert") && !set.Changed("tlskey") {
		c.tlsCert, c.tlsKey = from.Cert, from.Key
	}

	take("inbox-prefix", &c.inboxPrefix, from.InboxPrefix)
	c.tlsFirst = from.TLSFirst

	for _, login := range []string{"creds", "nkey", "user", "password", "token"} {
		if set.Changed(login) {
			return nil
		}
	}

	return c.logIn(from)
}

// logIn takes the login of a context: the first that it has, as the nats tool does, and the token.
func (c *Connection) logIn(from *stored) (err error) {
	if c.token, err = secret("token", from.Token); err != nil {
		return err
	}

	switch {
	case from.User != "":
		c.user = from.User
		c.password, err = secret("password", from.Password)
		c.userOnly = c.password == ""
	case from.Creds != "" && scheme(from.Creds) != "":
		c.credsText, err = secret("creds", from.Creds)
	case from.Creds != "":
		c.creds = from.Creds
	case from.NKey != "" && scheme(from.NKey) != "":
		err = errors.New("the nkey of the context: want the name of a file")
	case from.NKey != "":
		c.nkey = from.NKey
	case from.UserJWT != "":
		if c.jwt, err = secret("user_jwt", from.UserJWT); err == nil {
			c.seed, err = secret("user_seed", from.UserSeed)
		}
	}

	return err
}

// contextOptions returns the options for what only contexts have.
func (c *Connection) contextOptions() []nats.Option {
	var options []nats.Option
	if c.tlsFirst {
		options = append(options, nats.TLSHandshakeFirst())
	}

	if c.credsText != "" {
		options = append(options, nats.UserCredentialBytes([]byte(c.credsText)))
	}

	switch {
	case c.jwt != "" && c.seed != "":
		options = append(options, nats.UserJWTAndSeed(c.jwt, c.seed))
	case c.jwt != "": // of a bearer, who signs nothing
		options = append(options, nats.UserJWT(
			func() (string, error) { return c.jwt, nil },
			func([]byte) ([]byte, error) { return nil, nil }))
	}

	return options
}
