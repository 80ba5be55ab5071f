/* SPDX-License-Identifier: Apache-2.0
 * XML of foreign answers as JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "json/jx_xml.h"
#include "tests/fake/json_of.h"

static void becomes(const char *xml, const char *json)
{
    json_object *got = NULL;
    struct err e = ERR_INIT;
    if (jx_parse_xml(xml, strlen(xml), &got, &e) < 0)
        fail_msg("%s: %s", xml, e.msg);
    cleanup_json json_object *is = got;
    cleanup_json json_object *wanted = json_of(json);
    cleanup_buf struct buf text = BUF_INIT(4096);
    jx_print(is, &text);
    if (!json_object_equal(is, wanted))
        fail_msg("%s became %s", xml, text.data);
}

static void elements_become_texts_objects_and_lists(void **state)
{
    (void)state;
    becomes("<r><a>1</a><b><c> x </c></b></r>", "{\"a\":\"1\",\"b\":{\"c\":\" x \"}}");
    becomes("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<r xmlns=\"u\"><a k=\"v\"/></r>",
        "{\"a\":\"\"}");
    becomes("<r><set>\n <item><k>1</k></item>\n <item>t</item>\n</set></r>",
        "{\"set\":[{\"k\":\"1\"},\"t\"]}");
    becomes("<r><set/><set><item/></set></r>", "{\"set\":\"\"}"); /* the first counts */
    becomes("<r><a>&lt;&amp;&#x20AC;<![CDATA[<x>]]></a></r>", "{\"a\":\"<&\xE2\x82\xAC<x>\"}");
    becomes("<r><item>1</item><a>2</a></r>", "[\"1\"]"); /* a list holds items alone */
    becomes("<r>x<a/>y</r>", "{\"a\":\"\"}");
}

static void refuse(const char *xml, size_t size, const char *piece)
{
    json_object *got = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(jx_parse_xml(xml, size, &got, &e), -1);
    assert_int_equal(e.code, ERR_INVALID);
    assert_null(got);
    if (strstr(e.msg, piece) == NULL)
        fail_msg("%s", e.msg);
}

/* Entities could stand for files, addresses, or for a thousand million of themselves. */
static void no_document_type_no_entities(void **state)
{
    static const char *const BAD[] = {
        "<!DOCTYPE r [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><r>&b;</r>",
        "<!DOCTYPE r [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><r>&x;</r>",
        "<!DOCTYPE r SYSTEM \"http://127.0.0.1:1/x.dtd\"><r/>",
        "<!DOCTYPE r><r/>",
    };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        refuse(BAD[i], strlen(BAD[i]), "document type");
    refuse("<r>&x;</r>", 10, "malformed XML");
}

static void what_is_malformed_is_refused(void **state)
{
    static const char *const BAD[] = { "", " ", "x", "<r>", "<r></s>", "<r/><r/>",
        "<r a='1' a='2'/>", "<r>\xC3</r>", "<r>\x01</r>", "{\"a\":1}", "<r><a></r></a>" };
    (void)state;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        refuse(BAD[i], strlen(BAD[i]), "malformed XML");
    refuse("<r>\0</r>", 8, "malformed XML");
}

static void depth_and_names_have_a_limit(void **state)
{
    cleanup_buf struct buf text = BUF_INIT(4096);
    (void)state;
    for (int i = 0; i < JX_XML_DEPTH_MAX; i++)
        buf_puts(&text, "<d>");
    for (int i = 0; i < JX_XML_DEPTH_MAX; i++)
        buf_puts(&text, "</d>");
    json_object *got = NULL;
    assert_int_equal(jx_parse_xml(text.data, text.len, &got, NULL), 0);
    json_object_put(got);
    buf_clear(&text);
    for (int i = 0; i <= JX_XML_DEPTH_MAX; i++)
        buf_puts(&text, "<d>");
    refuse(text.data, text.len, "too deep");
    buf_clear(&text);
    buf_printf(&text, "<%0*d/>", JX_XML_NAME_SIZE, 0);
    text.data[1] = 'n';
    refuse(text.data, text.len, "name is too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_become_texts_objects_and_lists),
        cmocka_unit_test(no_document_type_no_entities),
        cmocka_unit_test(what_is_malformed_is_refused),
        cmocka_unit_test(depth_and_names_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
