/* A routed `produce` in C: fast_produce() of router.py for the usual calls, without a Python frame.
 *
 * A call looks up the topic in a dictionary, which also has the new topic of a replaced one. The call then hashes the
 * key, and calls confluent_kafka's own method, which checks every argument. These calls go to the function in Python,
 * with their arguments unchanged:
 *
 * - an argument is unknown, or the topic is not a str;
 * - the route needs more than the hash;
 * - the hash would choose the partition, but there is no key, or the key is empty or neither bytes nor str;
 * - the caller gives a partition, and the hash would choose it, or the topic is replaced.
 *
 * So Python has all rules, and C has only their shortest path.
 *
 * The look-up decides the record's topic and partition. There is no second look-up (invariant I7).
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

enum { TOPIC, VALUE, KEY, PARTITION, CALLBACK, ON_DELIVERY, TIMESTAMP, HEADERS, PARAMETERS };
static const char *const NAMES[PARAMETERS] = {
    "topic", "value", "key", "partition", "callback", "on_delivery", "timestamp", "headers",
};

typedef uint32_t (*Number)(const unsigned char *key, Py_ssize_t length);

/* The state of the module, one per interpreter. */
typedef struct {
    PyObject *names[PARAMETERS]; /* interned */
    PyObject *unassigned;        /* -1: librdkafka chooses */
    PyObject *no_timestamp;      /* 0 */
    PyTypeObject *reported;      /* the class Reported */
} State;

/* A method in C that takes a tuple and keywords, like confluent_kafka's, and the class of its instances. A direct call
 * costs less than a call of its descriptor. */
typedef struct {
    PyCFunctionWithKeywords call; /* NULL: not such a method */
    PyTypeObject *class;          /* borrowed from the descriptor */
} Method;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    State *state;
    PyObject *module;  /* keeps the state alive */
    PyObject *base;    /* confluent_kafka's method; like all functions here, it takes the producer first */
    Method method;     /* of base */
    PyObject *counts;  /* name -> Count of router.py */
    PyObject *reports; /* names that will soon point to another topic -> wrapper of delivery callbacks */
    PyObject *slow;    /* the same function in Python */
    PyObject *retry;   /* called for a record without a given partition that librdkafka has rejected */
    PyObject *refused; /* KafkaException */
    long absent;       /* the count of a name that is not in counts */
    Number number;
} Routed;

static uint32_t crc_table[256];

static void make_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? 0xEDB88320u ^ (value >> 1) : value >> 1;
        crc_table[byte] = value;
    }
}

static uint32_t crc32(const unsigned char *key, Py_ssize_t length)
{
    uint32_t value = 0xFFFFFFFFu;
    for (Py_ssize_t at = 0; at < length; at++)
        value = crc_table[(value ^ key[at]) & 0xFF] ^ (value >> 8);
    return value ^ 0xFFFFFFFFu;
}

static uint32_t murmur2(const unsigned char *key, Py_ssize_t length)
{
    const uint32_t m = 0x5BD1E995u;
    uint32_t h = 0x9747B28Cu ^ (uint32_t)length;
    for (; length >= 4; key += 4, length -= 4) {
        uint32_t k = (uint32_t)key[0] | (uint32_t)key[1] << 8 | (uint32_t)key[2] << 16 | (uint32_t)key[3] << 24;
        k *= m;
        k = (k ^ k >> 24) * m;
        h = (h * m) ^ k;
    }
    switch (length) {
    case 3:
        h ^= (uint32_t)key[2] << 16; /* fall through */
    case 2:
        h ^= (uint32_t)key[1] << 8; /* fall through */
    case 1:
        h = (h ^ key[0]) * m;
    }
    h = (h ^ h >> 13) * m;
    return (h ^ h >> 15) & 0x7FFFFFFFu;
}

static uint32_t fnv1a(const unsigned char *key, Py_ssize_t length)
{
    uint32_t h = 0x811C9DC5u;
    for (Py_ssize_t at = 0; at < length; at++)
        h = (h ^ key[at]) * 0x01000193u;
    return h & 0x80000000u ? (uint32_t)-h : h;
}

static Number number_named(const char *name)
{
    if (strcmp(name, "crc32") == 0)
        return crc32;
    if (strcmp(name, "murmur2") == 0)
        return murmur2;
    return strcmp(name, "fnv1a") == 0 ? fnv1a : NULL;
}

static Method method_of(PyObject *descriptor)
{
    Method found = {NULL, NULL};
    if (Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) {
        const PyMethodDef *definition = ((PyMethodDescrObject *)descriptor)->d_method;
        if (definition->ml_flags == (METH_VARARGS | METH_KEYWORDS))
            found = (Method){(PyCFunctionWithKeywords)(void (*)(void))definition->ml_meth, PyDescr_TYPE(descriptor)};
    }
    return found;
}

/* Call the method with args: the client and its arguments. */
static PyObject *call_method(Method method, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *tuple = PyTuple_New(nargs - 1);
    if (tuple == NULL)
        return NULL;
    for (Py_ssize_t at = 1; at < nargs; at++)
        PyTuple_SET_ITEM(tuple, at - 1, Py_NewRef(args[at]));
    PyObject *result = method.call(args[0], tuple, NULL); /* the client's class keeps the function alive */
    Py_DECREF(tuple);
    return result;
}

/* Return the index of the parameter that a keyword names, or -1. Compilers intern keywords, so a comparison of
 * addresses nearly always finds it. */
static int parameter(const State *state, PyObject *keyword)
{
    for (int at = 0; at < PARAMETERS; at++)
        if (keyword == state->names[at])
            return at;
    for (int at = 0; at < PARAMETERS; at++)
        if (PyUnicode_CompareWithASCIIString(keyword, NAMES[at]) == 0)
            return at;
    return -1;
}

/* Return the bytes of a key that librdkafka hashes, or NULL if Python has to handle the key. Sets no exception. */
static const unsigned char *key_bytes(PyObject *key, Py_ssize_t *length)
{
    if (key == NULL)
        return NULL;
    if (PyBytes_CheckExact(key)) {
        *length = PyBytes_GET_SIZE(key);
        return (const unsigned char *)PyBytes_AS_STRING(key);
    }
    if (PyUnicode_CheckExact(key)) {
        const char *text = PyUnicode_AsUTF8AndSize(key, length);
        if (text == NULL)
            PyErr_Clear(); /* lone surrogates: confluent_kafka raises its own error */
        return (const unsigned char *)text;
    }
    return NULL;
}

/* Pass a record that librdkafka has rejected, and not queued, to `retry` in Python, with the exception that is set.
 * `call` is the producer and the arguments. */
static PyObject *retried(Routed *self, PyObject *const *call)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *const *arguments = call + 1;
    PyObject *result = PyObject_CallFunctionObjArgs(
        self->retry, call[0], error, arguments[PARTITION], arguments[TOPIC], arguments[VALUE], arguments[KEY],
        arguments[CALLBACK], arguments[TIMESTAMP], arguments[HEADERS], NULL);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return result;
}

/* ---- Reported: the delivery callback of a record that brokers may reject because its topic is replaced (delivery.py).
 *
 * Like confluent_kafka, it hides callbacks that wait for their report from the garbage collector. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *report;
    PyObject *callback;
} Reported;

static PyObject *reported_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Reported *self = (Reported *)callable;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (nargs != 2 || kwnames != NULL)
        return PyErr_Format(PyExc_TypeError, "a delivery callback takes an error and a message");
    if (args[0] == Py_None)
        return PyObject_Vectorcall(self->callback, args, (size_t)nargs, NULL);
    return PyObject_CallFunctionObjArgs(self->report, self->callback, args[0], args[1], NULL);
}

static PyObject *reported_make(PyTypeObject *type, PyObject *report, PyObject *callback)
{
    Reported *self = PyObject_New(Reported, type);
    if (self == NULL)
        return NULL;
    self->vectorcall = reported_call;
    self->report = Py_NewRef(report);
    self->callback = Py_NewRef(callback);
    return (PyObject *)self;
}

static PyObject *reported_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"report", "callback", NULL};
    PyObject *report, *callback;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO", names, &report, &callback))
        return NULL;
    return reported_make(type, report, callback);
}

static void reported_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    Py_CLEAR(((Reported *)object)->report);
    Py_CLEAR(((Reported *)object)->callback);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMemberDef reported_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Reported, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot reported_slots[] = {
    {Py_tp_doc, (void *)"A delivery callback; see :data:`modeaware.confluent.delivery.Reported`."},
    {Py_tp_new, reported_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_dealloc, reported_dealloc},
    {Py_tp_members, reported_members},
    {0, NULL},
};

static PyType_Spec reported_spec = {
    .name = "modeaware.confluent._routed.Reported",
    .basicsize = sizeof(Reported),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = reported_slots,
};

/* Return the callback to queue with a record under this name, as a new reference, or NULL on an error. A
 * callable is wrapped if the name will soon point to another topic. */
static PyObject *callback_of(Routed *self, PyObject *name, PyObject *callback)
{
    PyObject *report = NULL;
    if (PyDict_GET_SIZE(self->reports) > 0 && PyCallable_Check(callback)) {
        report = PyDict_GetItemWithError(self->reports, name);
        if (report == NULL && PyErr_Occurred())
            return NULL;
    }
    return report != NULL ? reported_make(self->state->reported, report, callback) : Py_NewRef(callback);
}

/* Call librdkafka's method. If `where` is NULL, use the partition that the caller has given, if any. */
static PyObject *call_base(Routed *self, PyObject *producer, PyObject *const *given, PyObject *topic, PyObject *where,
                           PyObject *called)
{
    const State *state = self->state;
    PyObject *chosen = where != NULL ? where : given[PARTITION];
    PyObject *call[1 + PARAMETERS] = {
        producer,
        topic,
        given[VALUE] != NULL ? given[VALUE] : Py_None,
        given[KEY] != NULL ? given[KEY] : Py_None,
        chosen != NULL ? chosen : state->unassigned,
        called != NULL ? called : Py_None,
        Py_None,
        given[TIMESTAMP] != NULL ? given[TIMESTAMP] : state->no_timestamp,
        given[HEADERS] != NULL ? given[HEADERS] : Py_None,
    };
    Py_ssize_t count = chosen != NULL ? 4 : 3;
    if (given[TIMESTAMP] != NULL || (given[HEADERS] != NULL && given[HEADERS] != Py_None))
        count = PARAMETERS;
    else if (called != NULL && called != Py_None)
        count = 5;
    Py_INCREF(self); /* the call may give the producer another target, and release this one */
    PyObject *result = self->method.call != NULL && PyObject_TypeCheck(producer, self->method.class)
                           ? call_method(self->method, call, 1 + count)
                           : PyObject_Vectorcall(self->base, call, (size_t)(1 + count), NULL);
    if (result == NULL && given[PARTITION] == NULL && PyErr_ExceptionMatches(self->refused))
        result = retried(self, call);
    Py_DECREF(self);
    return result;
}

/* Find the topic of records under this name (borrowed), and the number of partitions among which a hash chooses. Return
 * -1 on an error. */
static int look_up(Routed *self, PyObject *name, PyObject **topic, long *count)
{
    *topic = name;
    *count = self->absent;
    PyObject *found = PyDict_GetItemWithError(self->counts, name);
    if (found == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (PyTuple_CheckExact(found)) {
        *topic = PyTuple_GET_ITEM(found, 0);
        found = PyTuple_GET_ITEM(found, 1);
    }
    *count = PyLong_AsLong(found);
    return *count == -1 && PyErr_Occurred() ? -1 : 0;
}

static PyObject *routed_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Routed *self = (Routed *)callable;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf) - 1; /* without the producer */
    if (nargs < 0 || nargs > PARAMETERS || self->base == NULL)
        goto slow;
    PyObject *given[PARAMETERS];
    for (Py_ssize_t at = 0; at < PARAMETERS; at++) /* unrolled: faster than a copy of nargs arguments */
        given[at] = at < nargs ? args[1 + at] : NULL;
    if (kwnames != NULL) {
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(kwnames); at++) {
            int which = parameter(self->state, PyTuple_GET_ITEM(kwnames, at));
            if (which < 0 || given[which] != NULL)
                goto slow;
            given[which] = args[1 + nargs + at];
        }
    }
    PyObject *name = given[TOPIC];
    if (name == NULL || !PyUnicode_CheckExact(name))
        goto slow;
    if (given[PARTITION] == self->state->unassigned) /* SerializingProducer passes -1 for no partition */
        given[PARTITION] = NULL;

    PyObject *topic;
    long count;
    if (look_up(self, name, &topic, &count) < 0)
        return NULL;
    /* For a replaced topic, a given partition was meant for the old topic. */
    if (count == 0 || (given[PARTITION] != NULL && (count > 0 || topic != name)))
        goto slow;
    PyObject *where = NULL;
    if (count > 0) {
        Py_ssize_t length = 0;
        const unsigned char *bytes = key_bytes(given[KEY], &length);
        if (bytes == NULL || length == 0)
            goto slow;
        where = PyLong_FromLong((long)(self->number(bytes, length) % (unsigned long)count));
        if (where == NULL)
            return NULL;
    }
    Py_INCREF(topic); /* the dictionary may release it meanwhile */
    /* A given callback has precedence over on_delivery, its alias, even if it is None. */
    PyObject *called = given[CALLBACK] != NULL ? given[CALLBACK] : given[ON_DELIVERY];
    PyObject *result = NULL;
    if (called == NULL || (called = callback_of(self, name, called)) != NULL)
        result = call_base(self, args[0], given, topic, where, called);
    Py_XDECREF(called);
    Py_XDECREF(where);
    Py_DECREF(topic);
    return result;

slow:
    if (self->slow == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Producer closed");
        return NULL;
    }
    return PyObject_Vectorcall(self->slow, args, (size_t)PyVectorcall_NARGS(nargsf), kwnames);
}

static PyObject *routed_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"base", "counts", "reports", "absent", "hash_name", "slow", "retry", "refused", NULL};
    PyObject *base, *counts, *reports, *slow, *retry, *refused;
    const char *hash_name;
    long absent;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!lsOOO", names, &base, &PyDict_Type, &counts, &PyDict_Type,
                                     &reports, &absent, &hash_name, &slow, &retry, &refused))
        return NULL;
    Number number = number_named(hash_name);
    if (number == NULL)
        return PyErr_Format(PyExc_ValueError, "unknown hash function %s", hash_name);
    PyObject *module = PyType_GetModule(type);
    if (module == NULL)
        return NULL;
    Routed *self = (Routed *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = routed_call;
    self->state = PyModule_GetState(module);
    self->module = Py_NewRef(module);
    self->base = Py_NewRef(base);
    self->method = method_of(base);
    self->counts = Py_NewRef(counts);
    self->reports = Py_NewRef(reports);
    self->slow = Py_NewRef(slow);
    self->retry = Py_NewRef(retry);
    self->refused = Py_NewRef(refused);
    self->absent = absent;
    self->number = number;
    return (PyObject *)self;
}

static int routed_traverse(PyObject *object, visitproc visit, void *arg)
{
    Routed *self = (Routed *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->module);
    Py_VISIT(self->base);
    Py_VISIT(self->counts);
    Py_VISIT(self->reports);
    Py_VISIT(self->slow);
    Py_VISIT(self->retry);
    Py_VISIT(self->refused);
    return 0;
}

static int routed_clear(PyObject *object)
{
    /* Keep the module and the dictionaries until dealloc: another finalizer may still call this object. */
    Routed *self = (Routed *)object;
    Py_CLEAR(self->base);
    Py_CLEAR(self->slow);
    Py_CLEAR(self->retry);
    return 0;
}

static void routed_dealloc(PyObject *object)
{
    Routed *self = (Routed *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    routed_clear(object);
    Py_CLEAR(self->counts);
    Py_CLEAR(self->reports);
    Py_CLEAR(self->refused);
    Py_CLEAR(self->module);
    type->tp_free(object);
    Py_DECREF(type);
}

/* ---- Forward: handed out in place of a method; calls the present target.
 *
 * The fallback in Python, a functools.partial without arguments, copies the arguments and takes 30 ns. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *func;
    Method method; /* of func */
    PyObject *weak_references;
} Forward;

static PyObject *forward_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    Forward *self = (Forward *)callable;
    if (self->func == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "closed");
        return NULL;
    }
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    if (self->method.call != NULL && kwnames == NULL && nargs > 0 && PyObject_TypeCheck(args[0], self->method.class))
        return call_method(self->method, args, nargs);
    /* The call, or a finalizer during an allocation, may replace self->func meanwhile. */
    PyObject *func = Py_NewRef(self->func);
    PyObject *result = PyObject_Vectorcall(func, args, (size_t)nargs, kwnames);
    Py_DECREF(func);
    return result;
}

static void forward_point_to(Forward *self, PyObject *func)
{
    PyObject *before = self->func;
    self->func = Py_NewRef(func);
    self->method = method_of(func);
    Py_XDECREF(before);
}

static PyObject *forward_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"func", NULL};
    PyObject *func;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &func))
        return NULL;
    Forward *self = (Forward *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = forward_call;
    forward_point_to(self, func);
    return (PyObject *)self;
}

/* The state is that of a partial: (func, args, keywords, dict). */
static PyObject *forward_setstate(PyObject *object, PyObject *state)
{
    PyObject *func, *arguments, *keywords, *dict;
    if (!PyArg_ParseTuple(state, "OOOO", &func, &arguments, &keywords, &dict))
        return NULL;
    forward_point_to((Forward *)object, func);
    Py_RETURN_NONE;
}

static int forward_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Forward *)object)->func);
    return 0;
}

static int forward_clear(PyObject *object)
{
    ((Forward *)object)->method.call = NULL;
    Py_CLEAR(((Forward *)object)->func);
    return 0;
}

static void forward_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (((Forward *)object)->weak_references != NULL)
        PyObject_ClearWeakRefs(object);
    forward_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef forward_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Forward, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Forward, weak_references), READONLY, NULL},
    {"func", T_OBJECT_EX, offsetof(Forward, func), READONLY, "The present target."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef forward_methods[] = {
    {"__setstate__", forward_setstate, METH_O, "Point to another function: (func, (), {}, None)."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot forward_slots[] = {
    {Py_tp_doc, (void *)"Calls the present target; see :class:`modeaware.confluent.retarget.Switch`."},
    {Py_tp_new, forward_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, forward_traverse},
    {Py_tp_clear, forward_clear},
    {Py_tp_dealloc, forward_dealloc},
    {Py_tp_members, forward_members},
    {Py_tp_methods, forward_methods},
    {0, NULL},
};

static PyType_Spec forward_spec = {
    .name = "modeaware.confluent._routed.Forward",
    .basicsize = sizeof(Forward),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = forward_slots,
};

/* ---- FollowingMethod: a method that calls the target in its instance's slot; see following() in retarget.py. Like
 * confluent_kafka's own methods, it is called without a bound method in between. It binds like a function. */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function;  /* the method in Python */
    PyTypeObject *owner; /* the class that has the slot; NULL: no class */
    Py_ssize_t offset;   /* of the slot, in instances of that class */
} FollowingMethod;

static PyObject *following_call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    FollowingMethod *self = (FollowingMethod *)callable;
    PyObject *called = NULL;
    if (PyVectorcall_NARGS(nargsf) > 0 && self->owner != NULL && PyObject_TypeCheck(args[0], self->owner))
        called = *(PyObject **)((char *)args[0] + self->offset);
    if (called == NULL)
        return PyObject_Vectorcall(self->function, args, nargsf, kwnames);
    if (PyVectorcall_Function(called) == forward_call) /* it keeps its target alive, and may be freed itself */
        return forward_call(called, args, nargsf, kwnames);
    Py_INCREF(called);
    PyObject *result = PyObject_Vectorcall(called, args, (size_t)PyVectorcall_NARGS(nargsf), kwnames);
    Py_DECREF(called);
    return result;
}

static PyObject *following_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", NULL};
    PyObject *function;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O", names, &function))
        return NULL;
    FollowingMethod *self = (FollowingMethod *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->vectorcall = following_call;
    self->function = Py_NewRef(function);
    return (PyObject *)self;
}

static PyObject *following_get(PyObject *self, PyObject *instance, PyObject *owner)
{
    return instance == NULL || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

/* The slot's name is "_following_" and the method's name. */
static PyObject *following_set_name(PyObject *object, PyObject *const *args, Py_ssize_t nargs)
{
    FollowingMethod *self = (FollowingMethod *)object;
    if (nargs != 2 || !PyType_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "__set_name__ takes a class and a name");
    if (self->owner != NULL)
        Py_RETURN_NONE; /* an application's class gives the method another name */
    PyObject *name = PyUnicode_FromFormat("_following_%U", args[1]);
    PyObject *slot = name != NULL ? PyObject_GetAttr(args[0], name) : NULL;
    Py_XDECREF(name);
    if (slot == NULL)
        return NULL;
    if (!Py_IS_TYPE(slot, &PyMemberDescr_Type) || ((PyMemberDescrObject *)slot)->d_member->type != T_OBJECT_EX) {
        Py_DECREF(slot);
        return PyErr_Format(PyExc_TypeError, "%U: no slot", args[1]);
    }
    Py_XSETREF(self->owner, (PyTypeObject *)Py_NewRef(PyDescr_TYPE(slot)));
    self->offset = ((PyMemberDescrObject *)slot)->d_member->offset;
    Py_DECREF(slot);
    Py_RETURN_NONE;
}

/* Return an attribute of the method, or else of the Python function. __doc__ and __module__ are the function's. */
static PyObject *following_getattro(PyObject *object, PyObject *name)
{
    static const char *const OF_FUNCTION[] = {"__doc__", "__module__", NULL};
    PyObject *function = ((FollowingMethod *)object)->function;
    for (const char *const *at = OF_FUNCTION; *at != NULL; at++)
        if (function != NULL && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, *at) == 0)
            return PyObject_GetAttr(function, name);
    PyObject *found = PyObject_GenericGetAttr(object, name);
    if (found != NULL || function == NULL || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(function, name);
}

static int following_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((FollowingMethod *)object)->function);
    Py_VISIT(((FollowingMethod *)object)->owner);
    return 0;
}

static int following_clear(PyObject *object)
{
    /* Keep the function until dealloc: it may still be called. The class that contains this object breaks the cycle. */
    Py_CLEAR(((FollowingMethod *)object)->owner);
    return 0;
}

static void following_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    following_clear(object);
    Py_CLEAR(((FollowingMethod *)object)->function);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMemberDef following_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FollowingMethod, vectorcall), READONLY, NULL},
    {"function", T_OBJECT_EX, offsetof(FollowingMethod, function), READONLY, "The method in Python."},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef following_methods[] = {
    {"__set_name__", (PyCFunction)(void (*)(void))following_set_name, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot following_slots[] = {
    {Py_tp_doc, (void *)"See :func:`modeaware.confluent.retarget.following`."},
    {Py_tp_new, following_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, following_get},
    {Py_tp_getattro, following_getattro},
    {Py_tp_traverse, following_traverse},
    {Py_tp_clear, following_clear},
    {Py_tp_dealloc, following_dealloc},
    {Py_tp_members, following_members},
    {Py_tp_methods, following_methods},
    {0, NULL},
};

static PyType_Spec following_spec = {
    .name = "modeaware.confluent._routed.FollowingMethod",
    .basicsize = sizeof(FollowingMethod),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_METHOD_DESCRIPTOR,
    .slots = following_slots,
};

static PyMemberDef routed_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Routed, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(routed_doc, "A routed ``produce``; see :func:`modeaware.confluent.router.fast_produce`.");

static PyType_Slot routed_slots[] = {
    {Py_tp_doc, (void *)routed_doc},
    {Py_tp_new, routed_new},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_traverse, routed_traverse},
    {Py_tp_clear, routed_clear},
    {Py_tp_dealloc, routed_dealloc},
    {Py_tp_members, routed_members},
    {0, NULL},
};

static PyType_Spec routed_spec = {
    .name = "modeaware.confluent._routed.RoutedProduce",
    .basicsize = sizeof(Routed),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = routed_slots,
};

static int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}

static int module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    for (int at = 0; at < PARAMETERS; at++)
        if ((state->names[at] = PyUnicode_InternFromString(NAMES[at])) == NULL)
            return -1;
    if ((state->unassigned = PyLong_FromLong(-1)) == NULL || (state->no_timestamp = PyLong_FromLong(0)) == NULL)
        return -1;
    make_crc_table();
    if ((state->reported = (PyTypeObject *)PyType_FromModuleAndSpec(module, &reported_spec, NULL)) == NULL ||
        PyModule_AddType(module, state->reported) < 0)
        return -1;
    PyType_Spec *const specs[] = {&routed_spec, &forward_spec, &following_spec, NULL};
    for (PyType_Spec *const *at = specs; *at != NULL; at++)
        if (add_type(module, *at) < 0)
            return -1;
    return 0;
}

/* The state holds text, numbers and a type, which last until the end: nothing to collect. */
static void module_free(void *module)
{
    State *state = PyModule_GetState(module);
    for (int at = 0; at < PARAMETERS; at++)
        Py_XDECREF(state->names[at]);
    Py_XDECREF(state->unassigned);
    Py_XDECREF(state->no_timestamp);
    Py_XDECREF(state->reported);
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "modeaware.confluent._routed",
    .m_doc = "The hot path of producers of shrunk topics, in C; optional.",
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__routed(void)
{
    return PyModuleDef_Init(&module_definition);
}
